//! The TLS connector for what the address asks.

use std::path::PathBuf;

use native_tls::{Certificate, Identity, TlsConnector};

use super::ConnectError;

/// How much of the server's certificate is checked; libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    Nothing,
    Authority,
    Full,
}

/// What TLS needs to know beyond [`Config`].
#[derive(Clone, Debug)]
pub(super) struct TlsParams {
    pub verify: Verify,
    pub root_cert: Option<PathBuf>,
    pub cert_and_key: Option<(PathBuf, PathBuf)>,
}

pub(super) fn connector(tls: &TlsParams) -> Result<TlsConnector, ConnectError> {
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|e| ConnectError::Tls(format!("{}: {e}", path.display())))
    };
    let refuse = |path: &std::path::Path| {
        let path = path.display().to_string();
        move |e: native_tls::Error| ConnectError::Tls(format!("{path}: {e}"))
    };
    let mut builder = TlsConnector::builder();
    builder
        .danger_accept_invalid_certs(tls.verify == Verify::Nothing)
        .danger_accept_invalid_hostnames(tls.verify != Verify::Full);
    if let Some(path) = &tls.root_cert {
        builder.disable_built_in_roots(true);
        for certificate in Certificate::stack_from_pem(&read(path)?).map_err(refuse(path))? {
            builder.add_root_certificate(certificate);
        }
    }
    if let Some((cert, key)) = &tls.cert_and_key {
        let identity = Identity::from_pkcs8(&read(cert)?, &read(key)?).map_err(refuse(key))?;
        builder.identity(identity);
    }
    builder
        .build()
        .map_err(|e| ConnectError::Tls(e.to_string()))
}
