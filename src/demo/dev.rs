//! `postrider dev`: a private Postgres, a worker and a receiver that stay up.

use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::Error;
use super::receiver::serve;
use super::show::line;
use super::stage::Stage;

/// How much of a body is shown.
const SHOWN: usize = 200;

/// Runs until Ctrl-C or SIGTERM; prints how to connect, what to try, and what the receiver gets.
pub async fn dev() -> Result<(), Error> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut stage = Stage::start().await?;
    stage.add_worker("dev")?;
    stage.registered(&stage.connect().await?).await?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let receiver = format!("http://{}/hook", listener.local_addr()?);
    tokio::spawn(serve(listener, echo));
    introduce(&stage.url(), &receiver);
    tokio::select! {
        error = stage.worker_failed() => return Err(error),
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    line("\nstopping; the database goes with it");
    stage.end().await
}

fn introduce(url: &str, receiver: &str) {
    line(format_args!(
        r#"
A private Postgres and a worker are up; the receiver below shows what it gets. Ctrl-C ends all of it.

    export DATABASE_URL='{url}'

To try, in another terminal:

    psql "$DATABASE_URL" -c "select * from postrider.create_endpoint('{receiver}')"
    psql "$DATABASE_URL" -c "select postrider.emit_event('invoice.paid', '{{\"id\":\"in_1\"}}')"
    psql "$DATABASE_URL" -c "select event_type, url, status, attempts, last_http_status from postrider.deliveries"
"#
    ));
}

async fn echo(_: Instant, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(|b| b.to_bytes())
        .unwrap_or_default();
    let mut text = format!("{} {}\n", head.method, head.uri);
    for (name, value) in &head.headers {
        text.push_str(&format!(
            "    {name}: {}\n",
            String::from_utf8_lossy(value.as_bytes())
        ));
    }
    let whole = String::from_utf8_lossy(&body);
    let shown: String = whole.chars().take(SHOWN).collect();
    let more = if shown.len() < whole.len() {
        " …"
    } else {
        ""
    };
    line(format_args!("{text}    {shown}{more}\n"));
    Response::new(Full::default())
}
