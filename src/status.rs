//! `postrider status`: queue, workers, endpoints, as tables.

use std::time::Duration;

use comfy_table::{Table, presets::NOTHING};
use tokio_postgres::Client;

use crate::inspect::{self, Depth, InspectError, Texts, within};

/// Most endpoints shown.
const MOST_ENDPOINTS: u32 = 50;

/// How long each part may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What there is to see, as text. A part that cannot be seen says why, and the others are shown.
pub async fn render(client: &Client) -> Result<String, InspectError> {
    let depth = within(client, LIMIT, inspect::depth(client)).await;
    let workers = within(client, LIMIT, inspect::workers(client)).await;
    let statuses = within(client, LIMIT, inspect::by_status(client)).await;
    let endpoints = within(client, LIMIT, inspect::endpoints(client, MOST_ENDPOINTS)).await;
    let nothing_seen = depth.is_err() && workers.is_err() && statuses.is_err();
    if let (true, Err(error)) = (nothing_seen, &endpoints) {
        return Err(error.clone());
    }

    let cut = endpoints
        .as_ref()
        .is_ok_and(|rows| rows.len() >= MOST_ENDPOINTS as usize);
    let mut text = part(
        "Queue",
        &[
            "outbox",
            "due",
            "later",
            "oldest due",
            "endpoints active",
            "paused",
            "disabled",
        ],
        depth.map(|depth| vec![queue(&depth)]),
    );
    text += &part(
        "Deliveries of the last 24 hours' events",
        &["status", "count"],
        statuses,
    );
    text += &part(
        "Workers",
        &["name", "release", "up for", "last beat", "endpoints owned"],
        workers,
    );
    text += &part(
        "Endpoints",
        &[
            "id",
            "tenant",
            "url",
            "state",
            "until",
            "failures",
            "backlog",
            "rate, burst, conc.",
            "success 24 h",
            "p50 ms",
            "p95 ms",
            "reason",
        ],
        endpoints,
    );
    if cut {
        text += "Those in trouble and with the longest backlog; for the rest: select * from postrider.endpoint_health;\n";
    }
    Ok(text.trim_end().to_owned())
}

fn queue(depth: &Depth) -> Texts {
    let oldest = Duration::from_secs(depth.oldest_due_age.as_secs());
    vec![
        depth.outbox.to_string(),
        depth.due.to_string(),
        depth.later.to_string(),
        humantime::format_duration(oldest).to_string(),
        depth.active.to_string(),
        depth.paused.to_string(),
        depth.disabled.to_string(),
    ]
}

fn part(title: &str, columns: &[&str], rows: Result<Vec<Texts>, InspectError>) -> String {
    match rows {
        Ok(rows) => table(title, columns, rows),
        Err(error) => format!("{title}: cannot be shown: {error}\n\n"),
    }
}

fn table(title: &str, columns: &[&str], rows: Vec<Texts>) -> String {
    if rows.is_empty() {
        return format!("{title}: none\n\n");
    }
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_header(columns.to_vec())
        .add_rows(rows);
    // Lines end where their text ends: a table is often pasted.
    let lines: Vec<String> = table
        .lines()
        .map(|line| format!("  {}", line.trim_end()))
        .collect();
    format!("{title}\n{}\n\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_cannot_be_shown_says_why() {
        let refused = Err(InspectError::Privilege("permission denied".into()));
        let text = part("Workers", &["name"], refused);
        assert!(text.starts_with("Workers: cannot be shown: permission denied"));
        assert_eq!(
            part("Workers", &["name"], Ok(Vec::new())),
            "Workers: none\n\n"
        );
    }

    #[test]
    fn lines_end_where_their_text_ends() {
        let rows = vec![
            vec!["1".into(), String::new()],
            vec!["22".into(), "x".into()],
        ];
        let text = table("Endpoints", &["id", "reason"], rows);
        assert!(text.starts_with("Endpoints\n"), "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
    }
}
