//! The soak: everything that can go wrong, at random, for minutes; then an audit of what came of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod application;
mod audit;
mod choices;
mod collect;
mod endpoints;
mod faults;
#[allow(unused_imports)] // some are for the tests alone
#[path = "../it/fixtures/mod.rs"]
mod fixtures;
mod operators;
mod receivers;
mod report;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use world::World;

const SESSIONS: u64 = 4;
const WORKERS: u64 = 3;
/// How long nothing at all may be settled once there are no faults, before what is owed counts as stuck.
const SETTLES_WITHIN: Duration = Duration::from_secs(120);

/// A randomized run of faults against a private Postgres, workers and a receiver, with an audit at its end.
#[derive(Debug, Parser)]
struct Args {
    /// How long the faults last.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Replays the random choices of an earlier run.
    #[arg(long)]
    seed: Option<u64>,
    /// Keeps what workers and server printed, and all violations, in this directory.
    #[arg(long)]
    evidence: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    // Dropped with the future: workers are killed, the server is stopped and its directory removed.
    let held = tokio::select! {
        held = soak(&args) => held,
        _ = tokio::signal::ctrl_c() => return ExitCode::from(130),
        _ = terminate.recv() => return ExitCode::from(143),
    };
    if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn soak(args: &Args) -> bool {
    let seed = args
        .seed
        .unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!(
        "seed {seed}, {} minutes; to replay its choices: ./dev soak --minutes {} --seed {seed}",
        args.minutes, args.minutes
    );
    let world = World::start(seed, Duration::from_secs_f64(args.minutes * 60.0)).await;
    endpoints::set_up(&world).await;
    println!("{:7.1} s  faults begin", world.now());
    let (quiet, _) = watch::channel(false);
    let is_quiet = || {
        let mut told = quiet.subscribe();
        async move { drop(told.wait_for(|is| *is).await) }
    };
    let workers =
        futures_util::future::join_all((0..WORKERS).map(|n| faults::worker(&world, n, is_quiet())));
    let sessions =
        futures_util::future::join_all((0..SESSIONS).map(|n| application::session(&world, n)));
    let others = async {
        tokio::join!(
            sessions,
            operators::operate(&world),
            faults::cut_connections(&world),
            faults::crash_server(&world),
            faults::eat_connections(&world),
            report::regularly(&world),
        );
        println!(
            "{:7.1} s  faults end; waiting for what is owed",
            world.now()
        );
        world.receivers.calm();
        settle(&world).await;
        quiet.send_replace(true);
    };
    let (printed, ()) = tokio::join!(workers, others);
    let evidence = collect::collect(&world, &printed).await;
    println!(
        "{:7.1} s  {} requests, {} deliveries, {} events",
        world.now(),
        evidence.requests.len(),
        evidence.deliveries.len(),
        evidence.events.len()
    );
    let findings = audit::audit(&evidence);
    if let Some(dir) = &args.evidence {
        collect::keep(&world, dir, &printed, &findings, &evidence);
    }
    report::show(&world, &evidence, &findings)
}

/// Waits until nothing is owed; operators put right what stands in the way.
async fn settle(world: &World) {
    let sql =
        "select (select count(*) from postrider.outbox) + (select count(*) from postrider.deferred)
                      + (select count(*) from postrider.pending)";
    let (mut least, mut since) = (i64::MAX, Instant::now());
    let mut said = since;
    while since.elapsed() < SETTLES_WITHIN {
        if let Some(client) = world.connect_superuser().await {
            operators::put_right(world, &client).await;
            let owed: i64 = client
                .query_one(sql, &[])
                .await
                .map_or(i64::MAX, |row| row.get(0));
            if owed < least {
                (least, since) = (owed, Instant::now());
            }
            if owed == 0 || said.elapsed() > Duration::from_secs(10) {
                println!("{:7.1} s  {owed} owed", world.now());
                said = Instant::now();
            }
            if owed == 0 {
                return;
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
