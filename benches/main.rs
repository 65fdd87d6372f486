//! Whole runs, measured: `./dev bench [name…]`, or `all`.
//!
//! Everything shares one machine, so figures are judged as ratios against something measured in the same run.
//! `README.md` beside this file says what each row means and what was seen.

mod backlog;
mod deliver;
mod emit;
mod fan_out;
mod idle;
mod isolation;
mod limit;
mod memory;
mod pace;
mod pressure;
mod scale_out;
mod shared;
mod steady;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use shared::table::{self, Report};
use shared::{Result, machine, scale};

type Run = fn(&mut Report) -> std::pin::Pin<Box<dyn Future<Output = Result<()>> + '_>>;

/// Name, longest time in seconds, what it is, and how it is run.
struct Bench {
    name: &'static str,
    limit_s: u64,
    about: &'static str,
    run: Run,
}

macro_rules! benches {
    ($($name:ident, $limit_s:literal, $about:literal;)*) => {
        &[$(Bench {
            name: stringify!($name),
            limit_s: $limit_s,
            about: $about,
            run: |report| Box::pin($name::run(report)),
        }),*]
    };
}

const BENCHES: &[Bench] = benches! {
    limit, 90, "what this machine can do without Postrider: the yardstick";
    emit, 150, "emit_event against a plain transaction with two inserts";
    deliver, 200, "100,000 deliveries of one worker, all that belongs to them";
    idle, 120, "from COMMIT to the arrival on an idle system, against the bare path";
    steady, 150, "emitting and delivering together at half of what is sustained: latency and backlog";
    isolation, 120, "twenty fast endpoints beside a slow one with a long queue";
    pace, 180, "three paces side by side, 1, 4 and 8 workers";
    backlog, 400, "claim, fetch and report with 1,000 to 5,000,000 deliveries owed";
    pressure, 480, "an old snapshot, readers of everything, overload: rates, slow calls, scans";
    fan_out, 120, "one event to 1, 100 and 10,000 endpoints";
    scale_out, 240, "1, 2 and 4 workers, 1,000 endpoints";
    memory, 150, "a worker's peak memory: 10,000 endpoints and 500 open requests; large bodies";
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` starts this, too, but has not asked for a measurement.
    if !args.iter().any(|a| a == "--bench") {
        return ExitCode::SUCCESS;
    }
    let names: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let known = |name: &&str| *name == "all" || BENCHES.iter().any(|b| b.name == *name);
    if names.is_empty() || !names.iter().all(known) {
        for bench in BENCHES {
            table::line(format_args!("{:<10} {}", bench.name, bench.about));
        }
        table::line("all        one after the other, and one table of all at the end");
        return ExitCode::from(if names.is_empty() { 0 } else { 2 });
    }
    let wanted = |b: &&Bench| names.contains(&"all") || names.contains(&b.name);
    match measure(BENCHES.iter().filter(wanted)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs them; true if all could be measured, whether or not they reach their bars.
fn measure<'a>(benches: impl Iterator<Item = &'a Bench>) -> Result<bool> {
    let runtime = tokio::runtime::Runtime::new()?;
    machine::print();
    scale::print();
    runtime.block_on(machine::print_server())?;
    let start = Instant::now();
    let mut reports = Vec::new();
    let mut measured = true;
    for bench in benches {
        let mut report = Report::new(bench.name);
        report.note(bench.about);
        let began = Instant::now();
        let limit = Duration::from_secs(bench.limit_s);
        let ended =
            runtime.block_on(async { tokio::time::timeout(limit, (bench.run)(&mut report)).await });
        table::progress("");
        let broken = match ended {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("not done within {limit:?}")),
        };
        if let Some(why) = broken {
            measured = false;
            report.holds("could be measured", false, why);
        }
        report.note(format_args!("took {:.0} s", began.elapsed().as_secs_f64()));
        reports.push(report);
    }
    table::print(&reports);
    let short: usize = reports.iter().map(Report::short).sum();
    table::line(format_args!(
        "\n{short} short; {:.0} s in all",
        start.elapsed().as_secs_f64()
    ));
    Ok(measured)
}
