//! What came of a request.

use std::time::{Duration, Instant};

/// Why no answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// The request's clock ran out.
    Timeout,
    /// The connect limit ran out, or the request's clock while connecting.
    ConnectTimeout,
    /// The name could not be looked up.
    Dns,
    /// No connection.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The connection was closed or reset without an answer.
    Reset,
    /// What came is no HTTP answer.
    BadAnswer,
    /// The address is one that requests may not go to. Final.
    AddressRefused,
    /// The request could not be built. Final.
    BadRequest,
}

impl ErrorCode {
    /// As it stands in `attempts.error_code`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::ConnectTimeout => "connect_timeout",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::BadAnswer => "bad_answer",
            Self::AddressRefused => "address_refused",
            Self::BadRequest => "bad_request",
        }
    }

    /// Whether no repetition changes it: nothing was asked of the endpoint.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::AddressRefused | Self::BadRequest)
    }
}

/// Why a request was not made. Nothing was asked of the receiver, so it is no attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSent {
    /// It was not allowed to leave any more.
    GateClosed,
    /// Other lookups took all threads for as long as it could wait.
    NoLookup,
}

/// What came of one request.
#[derive(Debug)]
pub struct Answer {
    /// Status of the answer; `None` when none came.
    pub http_status: Option<u16>,
    /// Why none came; or, beside a status, what was odd about the answer.
    pub error: Option<(ErrorCode, String)>,
    /// How long the answer asks to wait (RFC 9110 §10.2.3).
    pub wait: Option<Duration>,
    /// Up to 500 characters of the answer's body.
    pub excerpt: Option<String>,
    /// When the request began.
    pub started: Instant,
    /// From there to the end of the answer.
    pub duration: Duration,
}
