//! Faults: workers killed, frozen and stopped, the server crashed, its connections cut and used up.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio_postgres::NoTls;

use crate::audit::evidence::{Freeze, Span};
use crate::choices::Choices;
use crate::fixtures::process::Process;
use crate::world::{LEASE_S, MAX_CONNECTIONS, World};

/// How long a worker told to stop may take: its requests, the report, and a server that is away.
const STOPS_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
enum Blow {
    Kill,
    Freeze,
    FreezeBriefly,
    Stop,
}

fn start(world: &World) -> Process {
    let lease = format!("{LEASE_S}s");
    let args = [
        "worker",
        "--allow-network",
        "127.0.0.0/8",
        "--poll-interval",
        "1s",
        "--lease",
        &lease,
    ];
    Process::start(
        &args,
        &[
            ("DATABASE_URL", &world.url("soak_worker")),
            ("NO_COLOR", "1"),
        ],
    )
}

/// A worker that is killed, frozen or stopped, and started again, until the end of the run; then it is told to stop
/// when `quiet` resolves. Gives what its processes printed.
pub async fn worker(world: &World, number: u64, quiet: impl Future<Output = ()>) -> String {
    let mut choices = Choices::of(world.seed, &format!("worker {number}"));
    let mut printed = String::new();
    let mut process = start(world);
    while supervise(
        world,
        number,
        &mut process,
        &mut printed,
        choices.time(6000, 18_000),
    )
    .await
    {
        let blow = choices.weighted(&[
            (5, Blow::Kill),
            (3, Blow::Freeze),
            (2, Blow::FreezeBriefly),
            (2, Blow::Stop),
        ]);
        let pause = choices.time(0, 2000);
        match blow {
            Blow::Kill => {
                world.note(|log| log.count("workers killed"));
                process.signal(Signal::SIGKILL);
                process.wait(STOPS_WITHIN).await;
            }
            Blow::Freeze | Blow::FreezeBriefly => {
                let long = matches!(blow, Blow::Freeze);
                let time = if long {
                    choices.time(7000, 13_000)
                } else {
                    choices.time(200, 4000)
                };
                freeze(world, &process, time).await;
                continue;
            }
            Blow::Stop => stop(world, number, &mut process).await,
        }
        printed.push_str(&process.output());
        tokio::time::sleep(pause).await;
        process = start(world);
    }
    let mut quiet = std::pin::pin!(quiet);
    while tokio::time::timeout(Duration::from_millis(300), &mut quiet)
        .await
        .is_err()
    {
        // The run is over, so this looks once.
        supervise(world, number, &mut process, &mut printed, Duration::ZERO).await;
    }
    stop(world, number, &mut process).await;
    printed.push_str(&process.output());
    printed
}

/// Lets it work for a time, and starts it again when it ends by itself. False when the run is over.
async fn supervise(
    world: &World,
    number: u64,
    process: &mut Process,
    printed: &mut String,
    time: Duration,
) -> bool {
    let until = Instant::now() + time;
    loop {
        if let Some(status) = process.ended() {
            process.wait(STOPS_WITHIN).await;
            let output = process.output();
            if !could_not_start(world, status, &output) {
                let what = format!("worker {number} ended by itself: {status}");
                world.note(|log| log.workers.push(what));
            }
            printed.push_str(&output);
            *process = start(world);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        if !world.sleep(left.min(Duration::from_millis(300))).await {
            return false;
        }
    }
}

/// A worker that finds no server when it starts says so and ends; whatever watches over it starts it again.
fn could_not_start(world: &World, status: ExitStatus, output: &str) -> bool {
    let so = status.code() == Some(1)
        && output.contains("postrider: ")
        && !output.contains("registered");
    if so {
        world.note(|log| log.count("workers started while the server was away"));
    }
    so
}

async fn freeze(world: &World, process: &Process, time: Duration) {
    let from = world.now();
    process.signal(Signal::SIGSTOP);
    let (beat, ()) = tokio::join!(
        tokio::time::timeout(time, last_beat(world, process)),
        tokio::time::sleep(time)
    );
    process.signal(Signal::SIGCONT);
    let span = Span {
        from,
        to: world.now(),
    };
    // Where the server was away for so long, or the lease gone already, the worst is taken: a lease ago.
    let beat = beat.unwrap_or(from - LEASE_S as f64);
    world.note(|log| {
        log.count("workers frozen");
        log.freezes.push(Freeze { span, beat });
    });
}

/// When the worker beat last, as soon as the server says so.
async fn last_beat(world: &World, process: &Process) -> f64 {
    let sql = "select extract(epoch from max(seen_at))::float8 from postrider.workers where name like '%/' || $1";
    let pid = process.pid().to_string();
    loop {
        if let Some(client) = world.connect_superuser().await
            && let Ok(row) = client.query_one(sql, &[&pid]).await
            && let Some(at) = row.get::<_, Option<f64>>(0)
        {
            return at - world.epoch();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn stop(world: &World, number: u64, process: &mut Process) {
    process.signal(Signal::SIGTERM);
    let ended = process.try_wait(STOPS_WITHIN).await;
    let wrong = match ended {
        Some(status) if status.success() => {
            world.note(|log| log.count("workers stopped in good order"));
            None
        }
        Some(status) if could_not_start(world, status, &process.output()) => None,
        Some(status) => Some(format!("ended with {status}")),
        None => Some(format!("did not within {STOPS_WITHIN:?}")),
    };
    world.note(|log| {
        let wrong = wrong.map(|what| format!("worker {number}, told to stop, {what}"));
        log.workers.extend(wrong);
    });
    if ended.is_none() {
        process.signal(Signal::SIGKILL);
        process.wait(STOPS_WITHIN).await;
    }
}

/// A steady stream of pg_terminate_backend against all worker connections.
pub async fn cut_connections(world: &World) {
    let mut choices = Choices::of(world.seed, "connections");
    let mut client = None;
    while world.sleep(choices.time(200, 1500)).await {
        let all = choices.chance(0.1);
        let which = choices.between(0, 1 << 30);
        if client
            .as_ref()
            .is_none_or(tokio_postgres::Client::is_closed)
        {
            client = world.connect_superuser().await;
        }
        let Some(open) = &client else { continue };
        let sql = "select pg_terminate_backend(a.pid)
                     from (select pid, row_number() over (order by backend_start, pid) - 1 as n, count(*) over () as of
                             from pg_stat_activity where usename = 'soak_worker') a
                    where $1 or a.n = $2 % a.of";
        if let Ok(rows) = open.query(sql, &[&all, &(which as i64)]).await {
            world.note(|log| {
                rows.iter()
                    .for_each(|_| log.count("worker connections cut"))
            });
        }
    }
}

/// Crashes the server and starts it again.
pub async fn crash_server(world: &World) {
    let mut choices = Choices::of(world.seed, "server");
    while world.sleep(choices.time(20_000, 55_000)).await {
        let away = if choices.chance(0.2) {
            choices.time(6000, 12_000)
        } else {
            choices.time(0, 2000)
        };
        if let Err(error) = world.server.stop_immediate().await {
            panic!("the server does not stop: {error}");
        }
        tokio::time::sleep(away).await;
        if let Err(error) = world.server.resume().await {
            panic!("the server does not come back: {error}");
        }
        world.note(|log| log.count("server crashes"));
    }
}

/// Opens as many idle connections as there may be, and lets them go.
pub async fn eat_connections(world: &World) {
    let mut choices = Choices::of(world.seed, "idle");
    let url = world
        .server
        .socket_url("postgres")
        .replace("postgres://postgres@", "postgres://soak_idle@");
    while world.sleep(choices.time(15_000, 40_000)).await {
        let until = Instant::now() + choices.time(3000, 9000);
        let mut idle = Vec::new();
        let mut most = 0;
        while Instant::now() < until {
            // What others give up is taken too.
            match tokio_postgres::connect(&url, NoTls).await {
                Ok((client, connection)) if idle.len() < MAX_CONNECTIONS => {
                    tokio::spawn(connection);
                    idle.push(client);
                    most = most.max(idle.len());
                }
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
            idle.retain(|client| !client.is_closed());
        }
        world.note(|log| {
            log.count("times the connections ran out");
            log.most_idle = log.most_idle.max(most);
        });
    }
}
