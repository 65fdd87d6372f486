//! What is printed.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use comfy_table::Table;

use crate::audit::Finding;
use crate::audit::evidence::{Evidence, Seen};
use crate::world::World;

/// Violations shown of each rule.
const SHOWN: usize = 20;

/// A line twice a minute.
pub async fn regularly(world: &World) {
    while world.sleep(Duration::from_secs(30)).await {
        let (emitted, faults) = world.note(|log| {
            let faults = [
                "workers killed",
                "workers frozen",
                "worker connections cut",
                "server crashes",
            ];
            let faults =
                faults.map(|what| format!("{} {what}", log.counts.get(what).unwrap_or(&0)));
            (log.emitted.len(), faults.join(", "))
        });
        let requests = world.receivers.count();
        println!(
            "{:7.1} s  {emitted} emits, {requests} requests, {faults}",
            world.now()
        );
    }
}

/// How far the faults reached: deliveries accepted more than once without a replay, and requests open at a freeze.
fn reach(evidence: &Evidence) -> (usize, usize) {
    let ids: HashMap<&str, i64> = evidence
        .endpoints
        .iter()
        .map(|e| (e.path.as_str(), e.id))
        .collect();
    let mut accepted: HashMap<(&str, &str), usize> = HashMap::new();
    for request in evidence.requests.iter().filter(|r| r.accepted) {
        let key = request.event().zip(ids.get(request.path.as_str()).copied());
        if key.is_some_and(|key| !evidence.replayed.contains(&key)) {
            *accepted.entry((&request.path, &request.id)).or_default() += 1;
        }
    }
    let froze = |r: &&Seen| {
        let end = r.finished.unwrap_or(f64::INFINITY);
        evidence
            .freezes
            .iter()
            .any(|f| r.arrived < f.span.from && f.span.from < end)
    };
    (
        accepted.values().filter(|n| **n > 1).count(),
        evidence.requests.iter().filter(froze).count(),
    )
}

/// Prints what was done and what came of it; false if something did not hold.
pub fn show(world: &World, evidence: &Evidence, findings: &[Finding]) -> bool {
    world.note(|log| {
        println!();
        for (what, count) in &log.counts {
            println!("{count:7} {what}");
        }
        println!("{:7} idle connections at once", log.most_idle);
    });
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    evidence
        .deliveries
        .values()
        .for_each(|d| *states.entry(&d.status).or_default() += 1);
    states
        .iter()
        .for_each(|(state, count)| println!("{count:7} deliveries {state}"));
    let (again, open) = reach(evidence);
    println!("{again:7} deliveries accepted more than once, an answer or report being lost");
    println!("{open:7} requests open when a worker froze");
    let mut table = Table::new();
    table.set_header(["audit", "violations"]);
    for finding in findings {
        table.add_row([
            finding.rule.to_owned(),
            finding.violations.len().to_string(),
        ]);
    }
    println!("\n{table}");
    let broken: Vec<&Finding> = findings
        .iter()
        .filter(|f| !f.violations.is_empty())
        .collect();
    for finding in &broken {
        println!("\n{}:", finding.rule);
        finding
            .violations
            .iter()
            .take(SHOWN)
            .for_each(|v| println!("  {v}"));
    }
    println!(
        "\nseed {}: {}",
        world.seed,
        if broken.is_empty() {
            "no violations"
        } else {
            "VIOLATIONS"
        }
    );
    broken.is_empty()
}
