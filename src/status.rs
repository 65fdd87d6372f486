//! `postrider status`: queue, workers, endpoints, as tables.

use comfy_table::{Table, presets::NOTHING};
use tokio_postgres::Client;

use crate::inspect::{self, InspectError, Texts};

/// Most endpoints shown.
const MOST_ENDPOINTS: u32 = 50;

/// What there is to see, as text.
pub async fn render(client: &Client) -> Result<String, InspectError> {
    let depth = inspect::depth(client).await?;
    let queue = vec![vec![
        depth.outbox.to_string(),
        depth.due.to_string(),
        depth.later.to_string(),
        humantime::format_duration(std::time::Duration::from_secs(
            depth.oldest_due_age.as_secs(),
        ))
        .to_string(),
        depth.active.to_string(),
        depth.paused.to_string(),
        depth.disabled.to_string(),
    ]];
    let mut text = table(
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
        queue,
    );
    let statuses = inspect::by_status(client).await?;
    text += &table("Deliveries", &["status", "count"], statuses);
    let workers = inspect::workers(client).await?;
    text += &table(
        "Workers",
        &["name", "release", "up for", "last beat", "endpoints owned"],
        workers,
    );
    let endpoints = inspect::endpoints(client, MOST_ENDPOINTS).await?;
    let cut = endpoints.len() >= MOST_ENDPOINTS as usize;
    text += &table(
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
