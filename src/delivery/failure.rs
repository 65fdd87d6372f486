//! Why a request failed, found by the type of its causes and never by their text.

use std::{error::Error, io};

use bytes::Bytes;
use hyper_util::client::legacy;

use super::{ErrorCode, connect::DialError, send::Failed};

/// Names the cause. A request that died without a byte of an answer on a connection used before is to be repeated
/// with its `spare` body: the receiver may have closed it just then.
pub(super) fn classify(error: &legacy::Error, spare: Option<Bytes>) -> Failed {
    let mut causes = Vec::new();
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(this) = cause {
        causes.push(this);
        cause = this.source();
    }
    let code = causes
        .iter()
        .find_map(|c| by_type(*c))
        .unwrap_or(if error.is_connect() {
            ErrorCode::Connect
        } else {
            ErrorCode::Reset
        });
    // The outermost layers only say that a client failed; the inner ones say at what.
    let reason: Vec<String> = causes.iter().skip(1).map(ToString::to_string).collect();
    let reason = if reason.is_empty() {
        error.to_string()
    } else {
        reason.join(": ")
    };
    Failed {
        code,
        reason,
        repeat: spare.filter(|_| code == ErrorCode::Reset && !error.is_connect()),
    }
}

fn by_type(cause: &(dyn Error + 'static)) -> Option<ErrorCode> {
    if let Some(dial) = cause.downcast_ref::<DialError>() {
        return Some(match dial {
            DialError::Refused(_) => ErrorCode::AddressRefused,
            DialError::Lookup { .. } => ErrorCode::Dns,
            DialError::NoHost => ErrorCode::BadRequest,
            DialError::Io(_) => ErrorCode::Connect,
        });
    }
    if cause.is::<native_tls::Error>() {
        return Some(ErrorCode::Tls);
    }
    if let Some(http) = cause.downcast_ref::<hyper::Error>() {
        if http.is_parse() {
            return Some(ErrorCode::BadAnswer);
        }
        if http.is_incomplete_message() || http.is_canceled() || http.is_closed() {
            return Some(ErrorCode::Reset);
        }
    }
    let io = cause.downcast_ref::<io::Error>()?;
    matches!(
        io.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotConnected
    )
    .then_some(ErrorCode::Reset)
}
