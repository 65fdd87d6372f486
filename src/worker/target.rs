//! Where and how to send for one endpoint: its settings, parsed once.

use std::time::Duration;

use hyper::{HeaderMap, Uri, header::HeaderName, header::HeaderValue};

use crate::{
    db::Settings,
    delivery::{Secret, Style},
};

/// Everything about a request that is the same for each delivery of an endpoint.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) style: Style,
    pub(super) secrets: Vec<Secret>,
    pub(super) connect_timeout: Duration,
    pub(super) request_timeout: Duration,
}

impl Target {
    /// Parses settings. The database refuses what could fail here when it is stored; the error names what
    /// got past it.
    pub(super) fn new(settings: &Settings) -> Result<Self, String> {
        let uri = settings
            .url
            .parse()
            .map_err(|e| format!("the endpoint's URL cannot be used: {e}"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let parsed = HeaderName::try_from(name)
                .map_err(|e| e.to_string())
                .and_then(|n| Ok((n, HeaderValue::try_from(value).map_err(|e| e.to_string())?)))
                .map_err(|e| format!("header {name:?} of the endpoint cannot be sent: {e}"))?;
            headers.insert(parsed.0, parsed.1);
        }
        let style = settings
            .signature
            .parse()
            .map_err(|_| format!("unknown signature style {:?}", settings.signature))?;
        let secrets = settings
            .secrets
            .iter()
            .flatten()
            .map(|s| s.parse())
            .collect::<Result<Vec<Secret>, _>>()
            .map_err(|e| format!("a signing secret of the endpoint cannot be used: {e}"))?;
        if secrets.is_empty() {
            return Err("the endpoint has no valid signing secret".into());
        }
        Ok(Self {
            uri,
            headers,
            style,
            secrets,
            connect_timeout: Duration::from_millis(settings.connect_timeout_ms),
            request_timeout: Duration::from_millis(settings.request_timeout_ms),
        })
    }

    /// Whether what was parsed from `old` also serves `new`.
    pub(super) fn fits(&self, old: &Settings, new: &Settings) -> bool {
        old.url == new.url
            && old.headers == new.headers
            && old.signature == new.signature
            && old.secrets == new.secrets
            && old.connect_timeout_ms == new.connect_timeout_ms
            && old.request_timeout_ms == new.request_timeout_ms
    }
}
