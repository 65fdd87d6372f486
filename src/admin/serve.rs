//! The admin server.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::Mutex};

use super::Telemetry;
use crate::{
    connect::Database,
    inspect::{self, within},
};

/// How often the installation is looked at, at most; scrapes between get the last figures.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A database that hangs must not hang a scrape.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// The server gives up before we do, so that no statement goes on unseen.
const STATEMENT_LIMIT: Duration = Duration::from_millis(1_500);

struct Admin {
    telemetry: Arc<Telemetry>,
    database: Database,
    lease: Duration,
    looked: Mutex<Option<Instant>>,
}

/// Serves `/metrics`, `/livez` and `/readyz` for as long as the process lives.
pub async fn serve(
    listener: TcpListener,
    telemetry: Arc<Telemetry>,
    database: Database,
    lease: Duration,
) {
    let admin = Arc::new(Admin {
        telemetry,
        database: database.named("postrider-admin"),
        lease,
        looked: Mutex::new(None),
    });
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the admin server cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let admin = admin.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let admin = admin.clone();
                async move { Ok::<_, Infallible>(admin.answer(&request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an admin connection ended");
            }
        });
    }
}

impl Admin {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let only = "only GET is served here\n".into();
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, only);
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/metrics" => {
                self.look().await;
                let mut response = text(StatusCode::OK, self.telemetry.metrics.text());
                response.headers_mut().insert(
                    CONTENT_TYPE,
                    HeaderValue::from_static(
                        "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    ),
                );
                response
            }
            "/livez" => match self.telemetry.health.live(self.lease, Instant::now()) {
                Ok(()) => text(StatusCode::OK, "live\n".into()),
                Err(silent) => text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("the main loop has not turned for {} s\n", silent.as_secs()),
                ),
            },
            "/readyz" => match self.telemetry.health.ready() {
                Ok(()) => text(StatusCode::OK, "ready\n".into()),
                Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            },
            _ => text(
                StatusCode::NOT_FOUND,
                "there is /metrics, /livez and /readyz\n".into(),
            ),
        }
    }

    /// Brings the figures of the whole installation up to date, unless they are recent. Figures that cannot be had
    /// are left out: old ones would pass for new.
    async fn look(&self) {
        let mut looked = self.looked.lock().await;
        if looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        let began = Instant::now();
        *looked = Some(began);
        let depth = async {
            let client = self.database.connect().await.map_err(|e| e.to_string())?;
            let depth = within(&client, STATEMENT_LIMIT, inspect::depth(&client));
            depth.await.map_err(|e| e.to_string())
        };
        let depth = tokio::time::timeout(LOOK_LIMIT, depth)
            .await
            .unwrap_or_else(|_| Err("the database did not answer in time".into()));
        let metrics = &self.telemetry.metrics;
        metrics.db_call("queue_depth", began.elapsed(), depth.is_ok());
        if let Err(error) = &depth {
            tracing::warn!(%error, "the queue's depth cannot be read; its metrics are left out");
        }
        metrics.installation(depth.ok().as_ref());
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
