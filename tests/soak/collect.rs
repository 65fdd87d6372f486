//! Brings together what the database, the receiver and the actors know.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::path::Path;

use crate::audit::Finding;
use crate::audit::evidence::{Delivery, Endpoint, Evidence, Seen};
use crate::world::{LEASE_S, REQUEST_TIMEOUT_S, World};

/// What the faults bring about in the server's log, or operators who come too late.
const PROVOKED: &[&str] = &[
    "canceling statement due to lock timeout",
    "canceling statement due to statement timeout",
    "is not registered",
    "terminating connection",
    "connection to client lost",
    "remaining connection slots are reserved",
    "sorry, too many clients already",
    "the database system is",
    "there is no endpoint",
    "is deleted",
    "has not ended",
    "would have more than 5 valid secrets",
];

/// Everything there is to judge by.
pub async fn collect(world: &World, printed: &[String]) -> Evidence {
    let sql = world
        .connect_superuser()
        .await
        .expect("the server is there at the end");
    let rows = sql
        .query("select id, body from postrider.events", &[])
        .await
        .unwrap();
    let events = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let query = "select event_id, endpoint_id, status, reason,
                        extract(epoch from finished_at)::float8 from postrider.deliveries";
    let epoch = world.epoch();
    let rows = sql.query(query, &[]).await.unwrap().into_iter().map(|row| {
        let finished = row.get::<_, Option<f64>>(4).map(|at| at - epoch);
        (
            (row.get(0), row.get(1)),
            Delivery {
                status: row.get(2),
                reason: row.get(3),
                finished,
            },
        )
    });
    let deliveries = rows.collect();
    let query = "select n.id, n.url, coalesce(array_agg(s.secret) filter (where s.secret is not null), '{}')
                   from postrider.endpoints n left join postrider.endpoint_secrets s on s.endpoint_id = n.id
                  group by n.id, n.url";
    let rows = sql.query(query, &[]).await.unwrap();
    let base = world.receivers.receiver.url("");
    let stored: HashMap<String, (i64, Vec<String>)> = rows
        .iter()
        .map(|row| {
            (
                row.get::<_, String>(1).replace(&base, ""),
                (row.get(0), row.get(2)),
            )
        })
        .collect();
    let mut server_errors: Vec<String> = server_errors(world)
        .into_iter()
        .map(|(what, n)| format!("{n} times: {what}"))
        .collect();
    server_errors.sort();
    world.note(|log| {
        let endpoints = log.endpoints.iter().filter_map(|made| {
            let (id, secrets) = stored.get(&made.path)?;
            Some(Endpoint {
                id: *id,
                path: made.path.clone(),
                tenant: made.tenant.to_owned(),
                patterns: made.patterns.iter().map(|&p| p.to_owned()).collect(),
                rate: made.rate,
                burst: f64::from(made.burst),
                concurrency: made.concurrency as usize,
                created: made.created,
                deleted: made.deleted,
                secrets: made
                    .secrets
                    .iter()
                    .chain(secrets)
                    .cloned()
                    .collect::<HashSet<_>>(),
            })
        });
        let mut workers = log.workers.clone();
        workers.extend(
            printed
                .iter()
                .flat_map(|text| text.lines())
                .filter(|l| l.contains("panicked"))
                .map(str::to_owned),
        );
        Evidence {
            endpoints: endpoints.collect(),
            emitted: log.emitted.clone(),
            events,
            deliveries,
            replayed: log.replayed.clone(),
            requests: requests(world),
            freezes: log.freezes.clone(),
            stopped: log.stopped.clone(),
            workers,
            server_errors,
            lease: LEASE_S as f64,
            request_timeout: REQUEST_TIMEOUT_S as f64,
        }
    })
}

fn requests(world: &World) -> Vec<Seen> {
    let mut all: Vec<Seen> = world
        .receivers
        .receiver
        .requests()
        .into_iter()
        .map(|r| {
            let header = |name| r.header(name).unwrap_or_default().to_owned();
            let id = header("webhook-id");
            Seen {
                accepted: r.status.is_some_and(|s| (200..300).contains(&s))
                    || world.receivers.accepted(&r.path, &id),
                timestamp: header("webhook-timestamp"),
                signature: header("webhook-signature"),
                arrived: world.time(r.arrived),
                finished: r.finished.map(|at| world.time(at)),
                path: r.path.clone(),
                body: r.request.body,
                id,
            }
        })
        .collect();
    all.sort_by(|a, b| a.arrived.total_cmp(&b.arrived));
    all
}

fn server_log(world: &World) -> String {
    let path = world
        .server
        .data_dir()
        .parent()
        .map(|dir| dir.join("log"))
        .unwrap_or_default();
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

fn server_errors(world: &World) -> BTreeMap<String, usize> {
    let mut errors = BTreeMap::new();
    for line in server_log(world).lines() {
        let Some((_, message)) = ["ERROR:  ", "FATAL:  ", "PANIC:  ", "WARNING:  "]
            .iter()
            .find_map(|level| line.split_once(level))
        else {
            continue;
        };
        if !PROVOKED.iter().any(|known| message.contains(known)) {
            *errors.entry(message.to_owned()).or_default() += 1;
        }
    }
    errors
}

/// Writes down what helps to find out why.
pub fn keep(
    world: &World,
    dir: &Path,
    printed: &[String],
    findings: &[Finding],
    evidence: &Evidence,
) {
    std::fs::create_dir_all(dir).unwrap();
    for (n, text) in printed.iter().enumerate() {
        std::fs::write(dir.join(format!("worker-{n}.log")), text).unwrap();
    }
    std::fs::write(dir.join("server.log"), server_log(world)).unwrap();
    let mut text = format!("the start is {:.3} s after 1970\n", world.epoch());
    for finding in findings {
        finding
            .violations
            .iter()
            .for_each(|v| writeln!(text, "{}: {v}", finding.rule).unwrap());
    }
    std::fs::write(dir.join("violations"), text).unwrap();
    let mut text = String::new();
    for request in &evidence.requests {
        writeln!(
            text,
            "{request} until {:?} accepted {}",
            request.finished, request.accepted
        )
        .unwrap();
    }
    evidence.freezes.iter().for_each(|f| {
        writeln!(
            text,
            "frozen {:.3} to {:.3}, last beat {:.3}",
            f.span.from, f.span.to, f.beat
        )
        .unwrap()
    });
    evidence
        .stopped
        .iter()
        .for_each(|s| writeln!(text, "{} {} {:?}", s.path, s.how, s.span).unwrap());
    std::fs::write(dir.join("requests"), text).unwrap();
}
