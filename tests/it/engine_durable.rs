//! Which commits wait for the disk, on a server that writes its log only when one does.

use postrider::connect::Database;
use postrider::embedded::Embedded;
use postrider::schema;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::fixtures::engine::{count, one, run};
use crate::fixtures::sql::{attempt, emit, endpoint, fan_out, worker};

/// The log is written by commits that wait for it, and every ten seconds.
const LAZY: &[(&str, &str)] = &[
    ("wal_writer_delay", "10s"),
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("bgwriter_delay", "10s"),
    ("autovacuum", "off"),
    ("fsync", "off"),
];

/// A worker that owns an endpoint of which nothing is owed.
struct Lazy {
    server: Embedded,
    sql: Client,
    worker: Uuid,
    endpoint: i64,
}

async fn connect(server: &Embedded) -> Client {
    let database = Database::new(Some(&server.url("postgres"))).unwrap();
    database.connect().await.unwrap()
}

impl Lazy {
    async fn start() -> Self {
        let server = Embedded::start(LAZY).await.unwrap();
        let database = Database::new(Some(&server.url("postgres"))).unwrap();
        schema::migrate(&database).await.unwrap();
        let sql = connect(&server).await;
        let (endpoint, worker) = (endpoint(&sql, "patient").await, worker(&sql).await);
        let event = emit(&sql, "first").await;
        fan_out(&sql, worker).await;
        attempt(&sql, worker, event, endpoint, 200).await;
        Self {
            server,
            sql,
            worker,
            endpoint,
        }
    }

    /// What fan_out leaves `synchronous_commit` at.
    async fn fanned_out_with(&self) -> String {
        let call = format!(
            "select deliveries from postrider.fan_out('{}')",
            self.worker
        );
        assert_eq!(one::<i32>(&self.sql, &call).await, 1);
        one(&self.sql, "select current_setting('synchronous_commit')").await
    }

    async fn crash(&mut self) {
        self.server.stop_immediate().await.unwrap();
        self.server.resume().await.unwrap();
        self.sql = connect(&self.server).await;
    }
}

#[tokio::test]
async fn what_is_sent_is_on_disk_first() {
    let mut lazy = Lazy::start().await;
    run(&lazy.sql, "set synchronous_commit = off").await;
    emit(&lazy.sql, "a").await;
    run(&lazy.sql, "begin").await;
    assert_eq!(lazy.fanned_out_with().await, "on");
    run(&lazy.sql, "commit").await;
    lazy.crash().await;
    assert_eq!(count(&lazy.sql, "postrider.pending").await, 1);
}

/// Reports a 200 of this delivery's first attempt, always as the same outcome. Whether it was `held`.
async fn told(lazy: &Lazy, seq: i64, event: Uuid) -> bool {
    let (worker, endpoint) = (lazy.worker, lazy.endpoint);
    let report = format!(
        "select held from postrider.report_attempts('{worker}', '{{{seq}}}', '{{{event}}}', '{{{endpoint}}}', '{{1}}', '{{1}}', '{{0}}',
             '{{12}}', '{{200}}', '{{null}}', '{{null}}', '{{null}}', '{{null}}')"
    );
    one(&lazy.sql, &report).await
}

/// Its answer came when Postgres was back, and did not know of the delivery any more.
#[tokio::test]
async fn what_a_crash_undid_and_was_sent_is_made_and_ends_and_is_not_sent_again() {
    let mut lazy = Lazy::start().await;
    for (seq, deferred) in [(1001, false), (1002, true)] {
        let logged = &format!("postrider.attempts where seq = {seq}");
        let event = loop {
            let event = emit(&lazy.sql, "a").await;
            run(&lazy.sql, "begin").await;
            assert_eq!(lazy.fanned_out_with().await, "off");
            run(&lazy.sql, "commit").await;
            lazy.crash().await;
            if count(&lazy.sql, "postrider.outbox").await == 1 {
                break event;
            }
            // The log happened to be written between the two.
            attempt(&lazy.sql, lazy.worker, event, lazy.endpoint, 200).await;
        };
        assert!(told(&lazy, seq, event).await);
        assert_eq!(count(&lazy.sql, logged).await, 0);
        if deferred {
            let holder = connect(&lazy.server).await;
            let hold = format!("begin; select postrider.pause_endpoint({})", lazy.endpoint);
            run(&holder, &hold).await;
            fan_out(&lazy.sql, lazy.worker).await;
            run(&holder, "rollback").await;
            assert_eq!(count(&lazy.sql, "postrider.deferred").await, 1);
            assert!(told(&lazy, seq, event).await);
            assert_eq!(count(&lazy.sql, logged).await, 0);
        }
        fan_out(&lazy.sql, lazy.worker).await;
        assert_eq!(count(&lazy.sql, "postrider.pending").await, 1);
        for _ in 0..2 {
            assert!(!told(&lazy, seq, event).await);
            assert_eq!(count(&lazy.sql, "postrider.pending").await, 0);
            let ended =
                format!("postrider.finished where event_id = '{event}' and status = 'delivered'");
            assert_eq!(count(&lazy.sql, &ended).await, 1);
            assert_eq!(
                count(&lazy.sql, &format!("{logged} and not stale")).await,
                1
            );
        }
    }
}

#[tokio::test]
async fn a_synchronous_standby_is_waited_for() {
    let lazy = Lazy::start().await;
    lazy.server
        .configure(&[("synchronous_standby_names", "nobody")])
        .unwrap();
    run(&lazy.sql, "select pg_reload_conf()").await;
    crate::fixtures::eventually(crate::fixtures::worker::LIMIT, async || {
        let names: String = one(&lazy.sql, "show synchronous_standby_names").await;
        (names == "nobody").then_some(())
    })
    .await;
    run(&lazy.sql, "set synchronous_commit = local").await;
    emit(&lazy.sql, "a").await;
    run(&lazy.sql, "begin").await;
    assert_eq!(lazy.fanned_out_with().await, "on");
    run(&lazy.sql, "rollback").await;
}

#[tokio::test]
async fn what_its_caller_wrote_is_waited_for() {
    let lazy = Lazy::start().await;
    run(&lazy.sql, "create table own (n integer)").await;
    emit(&lazy.sql, "a").await;
    let other = connect(&lazy.server).await;
    run(&lazy.sql, "begin; insert into own values (1)").await;
    // Another's commit takes the log to the disk up to here.
    run(&other, "create table others ()").await;
    let on_disk = "select pg_current_wal_insert_lsn() <= pg_current_wal_flush_lsn()";
    assert!(one::<bool>(&lazy.sql, on_disk).await);
    assert_eq!(lazy.fanned_out_with().await, "on");
    run(&lazy.sql, "rollback").await;
}
