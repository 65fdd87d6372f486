//! G31: many workers start at once on an empty or an older schema.

use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use postrider::connect::Database;
use postrider::schema::{self, Migrated, State};

use crate::fixtures::bundles::{fingerprint, with_sql};
use crate::fixtures::eventually;
use crate::fixtures::postgres::TestDb;
use crate::fixtures::process::Process;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn g31_ten_installers_at_once_make_one_schema() {
    let db = TestDb::empty().await;
    let client = db.connect().await;
    assert_eq!(schema::check(&client).await.unwrap(), State::Missing);
    let database = db.database();
    let done = join_all((0..10).map(|_| schema::migrate(&database))).await;
    let done: Vec<Migrated> = done.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        done.iter().filter(|m| **m == Migrated::Installed).count(),
        1,
        "{done:?}"
    );
    assert_eq!(
        done.iter().filter(|m| **m == Migrated::Unchanged).count(),
        9,
        "{done:?}"
    );
    assert_eq!(schema::check(&client).await.unwrap(), State::Current);
    let before = fingerprint(&client).await;
    assert_eq!(
        schema::migrate(&database).await.unwrap(),
        Migrated::Unchanged
    );
    assert_eq!(fingerprint(&client).await, before);
}

#[tokio::test]
async fn g31_several_databases_of_one_server_install_at_once() {
    let dbs = join_all((0..4).map(|_| TestDb::empty())).await;
    let databases: Vec<Database> = dbs.iter().map(TestDb::database).collect();
    for done in join_all(databases.iter().map(schema::migrate)).await {
        assert_eq!(done.unwrap(), Migrated::Installed);
    }
}

#[tokio::test]
async fn g31_an_installer_killed_half_way_leaves_nothing() {
    let db = TestDb::empty().await;
    let client = db.connect().await;
    let bundle = with_sql("slow.sql", "select pg_catalog.pg_sleep(60)");
    let database = db.database();
    let installing = tokio::spawn(async move { schema::install(&database, &bundle).await });
    eventually(SOON, async || {
        let sql = "select pg_terminate_backend(pid) from pg_stat_activity
                   where datname = current_database() and wait_event = 'PgSleep'";
        client.query_opt(sql, &[]).await.unwrap()
    })
    .await;
    assert!(installing.await.unwrap().is_err());
    let sql = "select to_regnamespace('postrider') is null";
    assert!(client.query_one(sql, &[]).await.unwrap().get::<_, bool>(0));
    assert_eq!(
        schema::migrate(&db.database()).await.unwrap(),
        Migrated::Installed
    );
}

/// The real program, killed in the middle of its transaction: the next start waits until its session has ended,
/// and completes.
#[tokio::test]
async fn g31_the_one_that_migrates_is_killed_and_the_next_complete() {
    let db = TestDb::empty().await;
    let client = db.connect().await;
    client
        .batch_execute(
            "create function public.slow() returns event_trigger language plpgsql as $$
             begin
                 if exists (select from pg_event_trigger_ddl_commands() d where d.object_identity = 'postrider.pending') then
                     perform pg_sleep(2);
                 end if;
             end $$;
             create event trigger slow on ddl_command_end when tag in ('CREATE TABLE') execute function public.slow()",
        )
        .await
        .unwrap();
    let env = [("DATABASE_URL", db.url())];
    let mut first = Process::start(&["worker", "--migrate"], &env);
    eventually(SOON, async || {
        let sql = "select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
        client.query_opt(sql, &[]).await.unwrap()
    })
    .await;
    let others: Vec<_> = (0..3)
        .map(|_| Process::start(&["worker", "--migrate"], &env))
        .collect();
    first.signal(Signal::SIGKILL);
    first.wait(SOON).await;
    eventually(SOON, async || {
        let sql = "select to_regclass('postrider.workers') is not null";
        let there: bool = client.query_one(sql, &[]).await.unwrap().get(0);
        let sql = "select count(*) from postrider.workers";
        let workers: i64 = match there {
            true => client.query_one(sql, &[]).await.unwrap().get(0),
            false => 0,
        };
        (workers >= 3).then_some(())
    })
    .await;
    assert_eq!(schema::check(&client).await.unwrap(), State::Current);
    for worker in others {
        assert!(!worker.output().contains("error"), "{}", worker.output());
    }
}
