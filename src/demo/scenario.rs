//! The specification's own verification: 500, then 429 with `Retry-After: 5`, then 200.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tokio_postgres::Client;
use uuid::Uuid;

use super::cast::Endpoint;
use super::receiver::Script;
use super::show::{Show, short};
use super::stage::Stops;
use super::{Emitted, Error, sql};

/// Events emitted while the second attempt is open: they stand in the queue when the 429 comes.
pub const QUEUED: usize = 6;
/// Events emitted during the pause, one a second.
pub const DURING: usize = 3;

/// What the scenario leaves to be checked.
#[derive(Debug)]
pub struct Played {
    /// The event that is answered 500, 429 and 200.
    pub subject: Uuid,
    /// Everything emitted, the subject first.
    pub emitted: Vec<Emitted>,
    /// How many of the others were owed when the 429 was given.
    pub behind: usize,
}

/// Plays it; returns when the pause is nearly over.
pub async fn play(
    client: &Client,
    endpoint: &Endpoint,
    script: &Script,
    stops: &Stops,
    show: Show,
) -> Result<Played, Error> {
    let tenant = endpoint.part.tenant;
    let subject = sql::emit(client, tenant, "invoice.paid", body(0)).await?;
    let id = subject.id;
    show.say(format_args!(
        "{:<8} {}  emitted, invoice.paid",
        endpoint.part.name,
        short(&id.to_string())
    ));
    let mut emitted = vec![subject];

    let second = timeout(Duration::from_secs(20), script.second.notified());
    second
        .await
        .map_err(|_| Error::Late("the second attempt of the specification's event"))?;
    let bodies = (1..=QUEUED).map(|n| body(n).into_owned()).collect();
    emitted.extend(sql::emit_together(client, tenant, "invoice.updated", bodies).await?);
    let deadline = Instant::now() + Duration::from_secs(6);
    let mut behind = 0;
    while behind < QUEUED && Instant::now() < deadline {
        sleep(Duration::from_millis(20)).await;
        // All but the subject itself.
        behind = sql::owed(client, endpoint.id).await?.saturating_sub(1);
    }
    show.say(format_args!(
        "{:<8} attempt 2 is open; {behind} more events stand behind it",
        endpoint.part.name
    ));
    script.queued.notify_one();

    for n in 1..=DURING {
        sleep(Duration::from_secs(1)).await;
        emitted.push(sql::emit(client, tenant, "invoice.updated", body(QUEUED + n)).await?);
        if n == 1 {
            let name = sql::last_sender(client, endpoint.id)
                .await?
                .unwrap_or_default();
            if stops.stop(&name) {
                show.say(format_args!(
                    "{:<8} {name}, which got the 429, is stopped: the other worker must keep the pause",
                    endpoint.part.name
                ));
            }
        }
    }
    let (state, left) = sql::state(client, endpoint.id).await?;
    show.say(format_args!(
        "{:<8} {DURING} more events emitted meanwhile; endpoint_health: {state}{}, {} owed",
        endpoint.part.name,
        left.map_or(String::new(), |s| format!(", {s:.1} s to go")),
        sql::owed(client, endpoint.id).await?,
    ));
    Ok(Played {
        subject: id,
        emitted,
        behind,
    })
}

fn body(n: usize) -> Cow<'static, str> {
    Cow::Owned(format!(
        r#"{{ "id": "in_{n}", "amount_due": {}.50, "customer": "Zoë Müller" }}"#,
        1999 + n
    ))
}
