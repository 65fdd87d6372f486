use super::*;
use proptest::prelude::*;

fn none(_: &str) -> Option<String> {
    None
}

#[test]
fn tls_words_are_read_in_both_forms() {
    for address in [
        "postgres://u:p%40w@db.example:5433/app?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem&options=-c%20x%3D1",
        "host=db.example port=5433 user=u password='p@w' dbname=app sslmode=verify-full sslrootcert = /etc/ca.pem options='-c x=1'",
    ] {
        let (config, tls) = read(Some(address), &none).unwrap();
        assert_eq!(tls.verify, Verify::Full);
        assert_eq!(tls.root_cert.as_deref(), Some(Path::new("/etc/ca.pem")));
        assert_eq!(config.get_ssl_mode(), SslMode::Require);
        assert_eq!(config.get_password(), Some("p@w".as_bytes()));
        assert_eq!(config.get_dbname(), Some("app"));
        assert_eq!(config.get_ports(), [5433]);
        assert_eq!(config.get_options(), Some("-c x=1"));
        assert_eq!(config.get_application_name(), Some("postrider"));
        assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(5)));
    }
}

#[test]
fn several_hosts_and_session_attributes_pass() {
    let address = "postgres://a:1,b:2/app?target_session_attrs=primary&sslmode=require";
    let (config, tls) = read(Some(address), &none).unwrap();
    assert_eq!(config.get_hosts().len(), 2);
    assert_eq!(config.get_ports(), [1, 2]);
    assert_eq!(
        config.get_target_session_attrs(),
        TargetSessionAttrs::ReadWrite
    );
    assert_eq!(tls.verify, Verify::Nothing);
}

#[test]
fn the_environment_completes_and_never_overrides() {
    let env = |key: &str| {
        let value = match key {
            "PGHOST" => "env.example",
            "PGPORT" => "6000",
            "PGUSER" => "envuser",
            "PGPASSWORD" => "secret",
            "PGDATABASE" => "envdb",
            "PGSSLMODE" => "require",
            "PGSSLROOTCERT" => "/ca.pem",
            "PGAPPNAME" => "mine",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let (config, tls) = read(None, &env).unwrap();
    assert_eq!(config.get_hosts(), [Host::Tcp("env.example".into())]);
    assert_eq!(
        (config.get_user(), config.get_ports()),
        (Some("envuser"), &[6000][..])
    );
    assert_eq!(config.get_application_name(), Some("mine"));
    assert_eq!(tls.verify, Verify::Authority);
    let (config, tls) = read(Some("postgres://me@h/d?sslmode=disable"), &env).unwrap();
    assert_eq!(
        (config.get_user(), config.get_dbname()),
        (Some("me"), Some("d"))
    );
    assert_eq!(config.get_password(), Some("secret".as_bytes()));
    assert_eq!(
        (config.get_ssl_mode(), tls.verify),
        (SslMode::Disable, Verify::Nothing)
    );
}

#[test]
fn nothing_said_is_an_error_that_names_the_way_out() {
    let message = read(None, &none).unwrap_err().to_string();
    assert!(
        message.contains("DATABASE_URL") && message.contains("PGHOST"),
        "{message}"
    );
}

#[test]
fn the_password_is_never_printed() {
    for address in [
        "postgres://u:hunter2@h/d?sslmode=perhaps",
        "postgres://u:hunter2@h:port/d",
        "host=h password=hunter2 sslmode=perhaps",
        "host=h password=hunter2 nonsense=1",
        "host=h password='hunter2",
    ] {
        let error = read(Some(address), &none).unwrap_err();
        assert!(
            !format!("{error} {error:?}").contains("hunter2"),
            "{address}"
        );
    }
}

#[test]
fn a_socket_directory_needs_no_tls() {
    let (config, _) = read(Some("host=/run/pg user=u sslmode=require"), &none).unwrap();
    assert_eq!(config.get_ssl_mode(), SslMode::Disable);
}

proptest! {
    #[test]
    fn any_text_is_an_address_or_an_error(text in "\\PC{0,80}") {
        let _ = read(Some(&text), &none);
        let _ = read(Some(&format!("postgres://{text}")), &none);
    }

    #[test]
    fn any_value_survives_quoting(value in "\\PC{1,40}") {
        let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
        let (config, _) = read(Some(&format!("host=h dbname='{quoted}'")), &none).unwrap();
        prop_assert_eq!(config.get_dbname(), Some(value.as_str()));
    }
}
