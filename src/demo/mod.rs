//! `postrider demo`: the specification's own verification, shown live, and real payloads beside it;
//! [`dev`]: the same private Postgres and a worker, to try things out.
//!
//! Everything is judged by what the receiver saw. Nothing here is used by the product, and the product
//! has nothing for the demo: it is driven through SQL, as an application and an operator would.

mod cast;
mod check;
mod dev;
mod invariants;
mod isolation;
mod judge;
mod narrate;
mod payloads;
mod receiver;
mod scenario;
mod show;
mod sql;
mod stage;
#[cfg(test)]
mod tests;
mod verify;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use uuid::Uuid;

use crate::{connect, embedded, schema, status, worker};

pub use dev::dev;

use cast::Endpoint;
use judge::{Checks, Evidence};
use narrate::Narrator;
use receiver::{Receiver, Script};
use show::{Show, count, line};
use stage::{Stage, Stops};

/// How long everything may take, from the first event to the last answer.
const LIMIT: Duration = Duration::from_secs(50);

/// Why the demo could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no private Postgres.
    #[error(transparent)]
    Embedded(#[from] embedded::EmbeddedError),
    /// It cannot be connected to.
    #[error(transparent)]
    Connect(#[from] connect::ConnectError),
    /// The schema cannot be installed.
    #[error(transparent)]
    Schema(#[from] schema::SchemaError),
    /// A statement failed.
    #[error("{}", connect::explain(.0))]
    Sql(#[from] tokio_postgres::Error),
    /// The status cannot be read.
    #[error(transparent)]
    Inspect(#[from] crate::inspect::InspectError),
    /// A worker ended.
    #[error(transparent)]
    Worker(#[from] worker::Error),
    /// The receiver cannot listen, or a task ended.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A line of the payloads cannot be read.
    #[error("line {0} of the payloads cannot be read")]
    Data(usize),
    /// Something did not come.
    #[error("waited in vain for {0}")]
    Late(&'static str),
}

/// An event, as the demo emitted it.
#[derive(Debug)]
pub struct Emitted {
    id: Uuid,
    tenant: &'static str,
    event_type: &'static str,
    body: Cow<'static, str>,
    committed: Instant,
}

/// Shows the demo; true if everything held.
pub async fn run() -> Result<bool, Error> {
    let show = Show::new();
    show.heading("Postrider demo: a private Postgres, two workers, a hostile receiver");
    let mut stage = Stage::start().await?;
    let (client, other) = tokio::try_join!(stage.connect(), stage.connect())?;
    stage.add_worker("demo-1")?;
    stage.add_worker("demo-2")?;
    let workers = stage.registered(&client).await?;
    show.say("Postgres is up, the schema installed, two workers registered");

    let script = Arc::new(Script::default());
    let parts = || std::iter::once(cast::spec()).chain(cast::github());
    let answers = parts().map(|p| (p.name, p.answer(&script))).collect();
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    let receiver = Receiver::start(answers, tell).await?;
    sql::hasty_policy(&client, cast::POLICY, cast::BACKOFF_S).await?;
    let mut endpoints = Vec::new();
    for part in parts() {
        let url = receiver.url(part.name);
        endpoints.push(sql::create_endpoint(&client, part, &url).await?);
    }
    introduce(&endpoints);

    show.heading("Live, as the receiver answers:");
    let mut narrator = Narrator::new(told, show, &endpoints, &expected(&endpoints)?);
    let stops = stage.stops();
    let played = tokio::select! {
        played = play((&client, &other), &endpoints, (&script, &stops), show) => played?,
        error = stage.worker_failed() => return Err(error),
        () = narrator.run() => return Err(Error::Late("the receiver, which is gone")),
    };
    narrator.finish();

    let emitted = played.0.emitted.iter().chain(&played.1);
    let evidence = Evidence {
        endpoints: &endpoints,
        emitted: emitted.map(|e| (e.id, e)).collect(),
        seen: receiver.seen(),
        outcomes: sql::outcomes(&client).await?,
        attempts: sql::attempts(&client).await?,
    };
    let mut checks = Checks::default();
    show.heading("All endpoints:");
    check::everywhere(&evidence, &mut checks);
    isolation::check(&evidence, &mut checks);
    line(checks.lines());
    show.heading("The specification's scenario:");
    invariants::expectations(&evidence, &played.0, &mut checks);
    invariants::invariants(&evidence, &played.0, &mut checks);
    line(checks.lines());
    report_workers(&workers, &evidence);

    show.heading("postrider status:");
    line(status::render(&client).await?);
    stage.end().await?;
    let held = checks.broken() == 0;
    if held {
        show.say("everything held");
    } else {
        show.say(format_args!(
            "{} did NOT hold",
            count(checks.broken(), "check")
        ));
    }
    Ok(held)
}

/// Plays the scenario and emits the payloads at the same time, and waits until nothing is owed.
async fn play(
    (one, other): (&Client, &Client),
    endpoints: &[Endpoint],
    (script, stops): (&Script, &Stops),
    show: Show,
) -> Result<(scenario::Played, Vec<Emitted>), Error> {
    let spec = endpoints.first().ok_or(Error::Late("an endpoint"))?;
    let played = tokio::try_join!(
        scenario::play(one, spec, script, stops, show),
        payloads::emit(other, show)
    )?;
    settled(one, show).await?;
    Ok(played)
}

async fn settled(client: &Client, show: Show) -> Result<(), Error> {
    let deadline = Instant::now() + LIMIT;
    while sql::unfinished(client).await? > 0 {
        if Instant::now() > deadline {
            show.say("time is up, and something is still owed");
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn expected(endpoints: &[Endpoint]) -> Result<HashMap<i64, usize>, Error> {
    let events = payloads::events()?;
    let wanted = |e: &Endpoint| {
        let wants = |event: &&(&str, &str)| e.part.wants(cast::GITHUB, event.0);
        (e.id, events.iter().filter(wants).count())
    };
    Ok(endpoints.iter().map(wanted).collect())
}

fn report_workers(workers: &HashMap<Uuid, String>, evidence: &Evidence) {
    let spec = evidence.endpoints.first().map(|e| e.id);
    let mut lines: Vec<String> = workers
        .iter()
        .map(|(id, name)| {
            let sent = || evidence.attempts.iter().filter(|a| a.worker == *id);
            let hostile = sent().filter(|a| Some(a.endpoint) == spec).count();
            let requests = count(sent().count(), "request");
            format!(
                "    {name} sent {requests}, {hostile} of them to {}",
                cast::spec().name
            )
        })
        .collect();
    lines.sort();
    line(lines.join("\n"));
}

fn subscribed(event_types: &[&str]) -> String {
    let (first, more) = event_types.split_at(event_types.len().min(3));
    let more = if more.is_empty() { "" } else { " …" };
    format!("{}{more}", first.join(" "))
}

fn introduce(endpoints: &[Endpoint]) {
    for Endpoint { part, .. } in endpoints {
        let pace = part.rate.map_or("10/s".to_owned(), |r| format!("{r}/s"));
        line(format_args!(
            "            {:<8} {:<32} {:<8} {:>5}, {} open  {}",
            part.name,
            part.description,
            part.style.name(),
            pace,
            part.concurrency.unwrap_or(5),
            subscribed(&part.event_types),
        ));
    }
    line(format_args!(
        "            shortened for the show: {}'s first retry is drawn from 0 to {} s, not 0 to 30 s",
        cast::spec().name,
        cast::BACKOFF_S,
    ));
}
