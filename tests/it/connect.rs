//! Connections: TLS modes, notifications, the pool.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use postrider::connect::Database;
use postrider::embedded::Embedded;

use crate::fixtures::postgres::TestDb;

fn openssl(dir: &Path, args: &str) {
    let out = Command::new("openssl")
        .args(args.split(' '))
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "openssl {args}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// An authority, another one, and a certificate of the first for 127.0.0.1 alone.
fn certificates() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("postrider-certs-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&dir).unwrap();
    for name in ["ca", "other"] {
        openssl(
            &dir,
            &format!(
                "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.crt"
            ),
        );
    }
    openssl(
        &dir,
        "req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr",
    );
    std::fs::write(dir.join("san"), "subjectAltName=IP:127.0.0.1").unwrap();
    openssl(
        &dir,
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile san -out server.crt",
    );
    dir
}

#[tokio::test]
async fn tls_is_checked_as_far_as_asked() {
    let server = Embedded::start(&[("fsync", "off")]).await.unwrap();
    let certs = certificates();
    for name in ["server.crt", "server.key"] {
        server
            .put_file(name, &std::fs::read(certs.join(name)).unwrap())
            .unwrap();
    }
    let plain = server.url("postgres");
    let refused = Database::new(Some(&format!("{plain}?sslmode=require")))
        .unwrap()
        .connect()
        .await;
    assert!(refused.unwrap_err().to_string().contains("sslmode"));

    server.configure(&[("ssl", "on")]).unwrap();
    server.restart().await.unwrap();
    let by_name = plain.replace("127.0.0.1", "localhost");
    let (ca, other) = (certs.join("ca.crt"), certs.join("other.crt"));
    let (ca, other) = (ca.display(), other.display());
    for (url, encrypted) in [
        (format!("{plain}?sslmode=disable"), false),
        (plain.clone(), true),
        (format!("{plain}?sslmode=require"), true),
        (
            format!("{plain}?sslmode=verify-full&sslrootcert={ca}"),
            true,
        ),
        (
            format!("{by_name}?sslmode=verify-ca&sslrootcert={ca}"),
            true,
        ),
    ] {
        let database = Database::new(Some(&url)).unwrap();
        let sql = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        let client = database.connect().await.unwrap();
        assert_eq!(
            client.query_one(sql, &[]).await.unwrap().get::<_, bool>(0),
            encrypted,
            "{url}"
        );
        let pooled = database.pool(2).unwrap().get().await.unwrap();
        assert_eq!(
            pooled.query_one(sql, &[]).await.unwrap().get::<_, bool>(0),
            encrypted,
            "{url}"
        );
    }
    for url in [
        format!("{plain}?sslmode=verify-full&sslrootcert={other}"),
        format!("{plain}?sslmode=verify-ca&sslrootcert={other}"),
        format!("{plain}?sslmode=require&sslrootcert={other}"),
        format!("{plain}?sslmode=verify-full"),
        format!("{by_name}?sslmode=verify-full&sslrootcert={ca}"),
    ] {
        let error = Database::new(Some(&url))
            .unwrap()
            .connect()
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("certificate") && error.contains("sslrootcert"),
            "{url}: {error}"
        );
    }
    std::fs::remove_dir_all(certs).unwrap();
}

#[tokio::test]
async fn notifications_arrive_until_the_connection_dies() {
    let db = TestDb::empty().await;
    let (listening, mut hints) = db.database().connect_listening().await.unwrap();
    listening.batch_execute("listen postrider").await.unwrap();
    let other = db.connect().await;
    other
        .batch_execute("notify postrider, 'a'; notify postrider, 'b'")
        .await
        .unwrap();
    assert_eq!(hints.recv().await.unwrap().payload(), "a");
    assert_eq!(hints.recv().await.unwrap().payload(), "b");
    let sql = "select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid()";
    other.query(sql, &[]).await.unwrap();
    assert!(hints.recv().await.is_none());
    assert!(listening.is_closed());
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let db = TestDb::empty().await;
    let missing = db.url().replace(db.name(), "no_such_database");
    let error = Database::new(Some(&missing))
        .unwrap()
        .connect()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no_such_database") && error.contains("create it"),
        "{error}"
    );
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nobody = format!("postgres://u:hunter2@{closed}/d");
    let error = Database::new(Some(&nobody))
        .unwrap()
        .connect()
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("is the server running"),
        "{error}"
    );
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "postgres://u@{}/d?connect_timeout=1",
        silent.local_addr().unwrap()
    );
    let connecting = Database::new(Some(&url)).unwrap();
    let result = tokio::time::timeout(Duration::from_secs(5), connecting.connect())
        .await
        .unwrap();
    assert!(result.unwrap_err().to_string().contains("did not answer"));
}
