//! Takes out of a database address what `tokio_postgres` cannot read or reads differently.
//!
//! It knows neither `sslmode=verify-full` nor `sslrootcert`, and counts `tcp_user_timeout` in seconds.

use super::ConnectError;
use super::params::invalid;

#[derive(Default)]
pub(super) struct Own {
    pub sslmode: Option<String>,
    pub sslrootcert: Option<String>,
    pub sslcert: Option<String>,
    pub sslkey: Option<String>,
    pub tcp_user_timeout: Option<String>,
    pub target_session_attrs: Option<String>,
}

impl Own {
    /// Takes `key` if it is ours to handle, or harmless to leave out.
    pub fn take(&mut self, key: &str, value: &str) -> bool {
        let slot = match key {
            "sslmode" => &mut self.sslmode,
            "sslrootcert" => &mut self.sslrootcert,
            "sslcert" => &mut self.sslcert,
            "sslkey" => &mut self.sslkey,
            "tcp_user_timeout" => &mut self.tcp_user_timeout,
            "target_session_attrs" => &mut self.target_session_attrs,
            "gssencmode"
            | "sslcompression"
            | "client_encoding"
            | "fallback_application_name"
            | "krbsrvname"
            | "sslsni" => return true,
            _ => return false,
        };
        *slot = Some(value.to_owned());
        true
    }
}

pub(super) fn strip_url(address: &str, own: &mut Own) -> String {
    // A password may contain `?`, so the query is looked for behind the credentials.
    let from = address.find('@').unwrap_or(0);
    let Some(at) = address[from..].find('?').map(|i| i + from) else {
        return address.to_owned();
    };
    let kept: Vec<&str> = address[at + 1..]
        .split('&')
        .filter(|pair| !pair.is_empty())
        .filter(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            !own.take(&percent_decode(key), &percent_decode(value))
        })
        .collect();
    if kept.is_empty() {
        return address[..at].to_owned();
    }
    format!("{}?{}", &address[..at], kept.join("&"))
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = bytes.get(i + 1..i + 3).and_then(|h| hex::decode(h).ok());
        match (bytes[i], hex) {
            (b'%', Some(byte)) => {
                out.extend(byte);
                i += 3;
            }
            (byte, _) => {
                out.push(byte);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub(super) fn strip_pairs(address: &str, own: &mut Own) -> Result<String, ConnectError> {
    let mut kept = String::new();
    let mut chars = address.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let mut key = String::new();
        while let Some(c) = chars.next_if(|c| *c != '=' && !c.is_whitespace()) {
            key.push(c);
        }
        if key.is_empty() && chars.peek().is_none() {
            return Ok(kept);
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if key.is_empty() || chars.next() != Some('=') {
            return Err(invalid("a key without a value among the key=value pairs"));
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let quoted = chars.next_if_eq(&'\'').is_some();
        let mut value = String::new();
        loop {
            match chars.next() {
                Some('\\') => value.extend(chars.next()),
                Some('\'') if quoted => break,
                Some(c) if !quoted && c.is_whitespace() => break,
                Some(c) => value.push(c),
                None if quoted => {
                    return Err(invalid(&format!("the quote of {key} is not closed")));
                }
                None => break,
            }
        }
        if !own.take(&key, &value) {
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            kept.push_str(&format!("{key}='{value}' "));
        }
    }
}
