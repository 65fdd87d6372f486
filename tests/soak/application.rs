//! Application sessions: transactions that emit, and commit, roll back, or are cut off.

use std::time::Duration;

use tokio_postgres::Client;
use uuid::Uuid;

use crate::audit::evidence::{Emitted, Ending};
use crate::choices::Choices;
use crate::world::World;

/// Tenant and event type, and how often.
const KINDS: &[(u64, (&str, &str))] = &[
    (30, ("default", "invoice.paid")),
    (20, ("default", "invoice.sent")),
    (20, ("default", "user.created")),
    (4, ("default", "report.done")),
    (15, ("other", "invoice.paid")),
    (5, ("other", "nobody.listens")),
];

#[derive(Clone, Copy, PartialEq)]
enum End {
    Commit,
    /// With `synchronous_commit = off`: a crash may undo it.
    CommitLazily,
    Rollback,
    /// The first half of the events is undone, the other committed.
    Savepoint,
    /// The session goes away in the middle.
    CutOff,
}

struct Plan {
    events: Vec<(&'static str, &'static str, String, Option<f64>)>,
    end: End,
    linger: Duration,
}

impl Plan {
    fn draw(choices: &mut Choices, session: u64, transaction: u64) -> Self {
        let count = choices.weighted(&[(60, 1), (20, 2), (10, 5), (2, 30)]);
        let events = (0..count).map(|n| {
            let (tenant, event_type) = choices.weighted(KINDS);
            let pad = choices.weighted(&[(50, 0), (40, 300), (3, 20_000)]);
            // Odd spacing, and text that an encoder would change: the bytes are to stay as they are.
            let body = format!(
                "{{ \"n\":\"{session}/{transaction}/{n}\",\"pad\" : \"{}\", \"\\u0041\":1.0e2 }}",
                "ä".repeat(pad)
            );
            let later = choices.chance(0.05).then(|| choices.between(1, 4) as f64);
            (tenant, event_type, body, later)
        });
        let events = events.collect();
        let end = choices.weighted(&[
            (70, End::Commit),
            (8, End::CommitLazily),
            (12, End::Rollback),
            (6, End::Savepoint),
            (4, End::CutOff),
        ]);
        let linger = if choices.chance(0.05) {
            choices.time(500, 3000)
        } else {
            choices.time(0, 20)
        };
        Self {
            events,
            end,
            linger,
        }
    }
}

/// Emits until the end of the run.
pub async fn session(world: &World, number: u64) {
    let mut choices = Choices::of(world.seed, &format!("application {number}"));
    let mut client: Option<Client> = None;
    let mut transaction = 0;
    while !world.over() {
        tokio::time::sleep(choices.time(40, 400)).await;
        transaction += 1;
        let plan = Plan::draw(&mut choices, number, transaction);
        if client.as_ref().is_none_or(Client::is_closed) {
            client = world.connect("soak_app").await;
        }
        let Some(open) = &client else { continue };
        let mut emitted: Vec<Emitted> = Vec::new();
        let outcome = carry_out(world, open, &plan, &mut emitted).await;
        if outcome.is_err() || plan.end == End::CutOff {
            client = None;
        }
        world.note(|log| {
            log.count(match (&outcome, plan.end) {
                (Err(_), _) => "transactions cut off by a fault",
                (_, End::Commit | End::CommitLazily) => "transactions committed",
                (_, End::Savepoint) => "transactions with a savepoint undone",
                (_, End::Rollback) => "transactions rolled back",
                (_, End::CutOff) => "transactions left open",
            })
        });
        let ending = match outcome {
            Ok(Some(_)) if plan.end == End::CommitLazily => Ending::Unknown,
            Ok(Some(at)) => Ending::Committed(at),
            Err(Cut::InCommit) => Ending::Unknown,
            Ok(None) | Err(Cut::Before) => Ending::RolledBack,
        };
        let emitted = emitted.into_iter().map(|e| match e.ending {
            Ending::Unknown => Emitted { ending, ..e },
            _ => e,
        });
        world.note(|log| log.emitted.extend(emitted));
    }
}

/// When a fault met the transaction.
enum Cut {
    Before,
    InCommit,
}

/// When its COMMIT was sent, if it was committed.
async fn carry_out(
    world: &World,
    client: &Client,
    plan: &Plan,
    emitted: &mut Vec<Emitted>,
) -> Result<Option<f64>, Cut> {
    let run = async |sql: &str| client.batch_execute(sql).await.map_err(|_| Cut::Before);
    run("begin").await?;
    if plan.end == End::CommitLazily {
        run("set local synchronous_commit = off").await?;
    }
    if plan.end == End::Savepoint {
        run("savepoint half").await?;
    }
    let undone = plan.events.len().div_ceil(2);
    for (n, (tenant, event_type, body, later)) in plan.events.iter().enumerate() {
        if plan.end == End::Savepoint && n == undone {
            run("rollback to savepoint half").await?;
            emitted
                .iter_mut()
                .for_each(|e| e.ending = Ending::RolledBack);
        }
        // Until the end is known; `Unknown` stands for that of the transaction.
        emitted.push(Emitted {
            id: None,
            tenant: (*tenant).to_owned(),
            event_type: (*event_type).to_owned(),
            body: body.clone(),
            ending: Ending::Unknown,
        });
        let sql = "select postrider.emit_event($1::text, $2::text, tenant => $3::text,
                          deliver_at => pg_catalog.clock_timestamp() + $4::float8 * interval '1 s')";
        let row = client
            .query_one(sql, &[event_type, body, tenant, later])
            .await
            .map_err(|_| Cut::Before)?;
        if let Some(last) = emitted.last_mut() {
            last.id = Some(row.get::<_, Uuid>(0));
        }
    }
    if plan.end == End::Savepoint && plan.events.len() == 1 {
        run("rollback to savepoint half").await?;
        emitted
            .iter_mut()
            .for_each(|e| e.ending = Ending::RolledBack);
    }
    tokio::time::sleep(plan.linger).await;
    match plan.end {
        End::CutOff => Ok(None),
        End::Rollback => run("rollback").await.map(|()| None),
        _ => {
            let sent = world.now();
            client
                .batch_execute("commit")
                .await
                .map(|()| Some(sent))
                .map_err(|_| Cut::InCommit)
        }
    }
}
