//! A lean client: what sending a signed request costs when nothing else is done.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use postrider::delivery::{Secret, Style, signature};
use tokio::net::TcpStream;

use super::Result;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// One kept-alive connection.
pub struct Sender {
    connection: SendRequest<Full<Bytes>>,
    secrets: [Secret; 1],
    host: String,
}

impl Sender {
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(Self {
            connection,
            secrets: [SECRET.parse()?],
            host: address.to_string(),
        })
    }

    /// Signs and sends, and reads the answer.
    pub async fn send(&mut self, body: &Bytes) -> Result<()> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let timestamp = i64::try_from(now.as_secs())?;
        let request = Request::post("/0")
            .header("Host", &self.host)
            .header("Content-Type", "application/json")
            .header("User-Agent", "postrider/bench")
            .header("Webhook-Id", ID)
            .header("Webhook-Timestamp", timestamp)
            .header(
                "Webhook-Signature",
                signature(Style::Stripe, &self.secrets, ID, timestamp, body),
            )
            .header("Webhook-Event-Type", "bench.0")
            .header("Webhook-Attempt", 1)
            .body(Full::new(body.clone()))?;
        let answer = self.connection.send_request(request).await?;
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok(())
    }
}

/// Sends over this many connections for this long; how many requests were answered.
pub async fn flood(address: SocketAddr, connections: usize, time: Duration) -> Result<u64> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let mut sender = Sender::connect(address).await?;
        let body = Bytes::from(super::load::body(1024));
        tasks.spawn(async move {
            let end = Instant::now() + time;
            let mut sent = 0_u64;
            while Instant::now() < end {
                sender.send(&body).await?;
                sent += 1;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(sent)
        });
    }
    let mut all = 0;
    while let Some(sent) = tasks.join_next().await {
        all += sent??;
    }
    Ok(all)
}
