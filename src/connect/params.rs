//! Reads a database address the way libpq does: a URL or `key=value` pairs, completed by `PG*`.

use std::path::Path;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::ConnectError;
use super::strip::{Own, strip_pairs, strip_url};
use super::tls::{TlsParams, Verify};

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads `address`, completed from the environment as libpq does.
pub(super) fn read(
    address: Option<&str>,
    env: Env<'_>,
) -> Result<(Config, TlsParams), ConnectError> {
    let mut own = Own::default();
    let mut config = match address.map(str::trim).filter(|a| !a.is_empty()) {
        Some(address) => parse(address, &mut own)?,
        None if ["PGHOST", "PGHOSTADDR", "PGUSER", "PGDATABASE"]
            .iter()
            .any(|k| env(k).is_some()) =>
        {
            Config::new()
        }
        None => return Err(ConnectError::NoAddress),
    };
    complete(&mut config, env)?;
    let tls = apply_own(&mut config, own, env)?;
    Ok((config, tls))
}

fn parse(address: &str, own: &mut Own) -> Result<Config, ConnectError> {
    let rest = if ["postgres://", "postgresql://"]
        .iter()
        .any(|p| address.starts_with(p))
    {
        strip_url(address, own)
    } else if address.contains('=') {
        strip_pairs(address, own)?
    } else {
        return Err(invalid(
            "it is neither a postgres:// URL nor key=value pairs",
        ));
    };
    rest.parse::<Config>()
        .map_err(|e| invalid(&super::explain(&e)))
}

/// Fills what the address left open, from `PG*` and then from libpq's defaults.
fn complete(config: &mut Config, env: Env<'_>) -> Result<(), ConnectError> {
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        for addr in env("PGHOSTADDR").iter().flat_map(|v| v.split(',')) {
            config.hostaddr(
                addr.parse()
                    .map_err(|_| invalid("PGHOSTADDR is no IP address"))?,
            );
        }
        for host in env("PGHOST").iter().flat_map(|v| v.split(',')) {
            config.host(host);
        }
    }
    if config.get_ports().is_empty() {
        for port in env("PGPORT").iter().flat_map(|v| v.split(',')) {
            config.port(
                port.parse()
                    .map_err(|_| invalid("PGPORT is no port number"))?,
            );
        }
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let socket = ["/var/run/postgresql", "/tmp"]
            .into_iter()
            .find(|dir| Path::new(dir).join(format!(".s.PGSQL.{port}")).exists());
        config.host(socket.unwrap_or("localhost"));
    }
    if let (None, Some(user)) = (config.get_user(), env("PGUSER")) {
        config.user(user);
    }
    if let (None, Some(password)) = (config.get_password(), env("PGPASSWORD")) {
        config.password(password);
    }
    if let (None, Some(dbname)) = (config.get_dbname(), env("PGDATABASE")) {
        config.dbname(dbname);
    }
    if let (None, Some(options)) = (config.get_options(), env("PGOPTIONS")) {
        config.options(options);
    }
    if config.get_application_name().is_none() {
        config.application_name(env("PGAPPNAME").unwrap_or_else(|| "postrider".to_owned()));
    }
    if config.get_connect_timeout().is_none() {
        let seconds = env("PGCONNECT_TIMEOUT")
            .and_then(|v| v.parse().ok())
            .filter(|s| *s > 0);
        config.connect_timeout(Duration::from_secs(seconds.unwrap_or(5)));
    }
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(Duration::from_secs(30));
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(Duration::from_secs(10));
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(3);
    }
    Ok(())
}

fn apply_own(config: &mut Config, own: Own, env: Env<'_>) -> Result<TlsParams, ConnectError> {
    let milliseconds = match own.tcp_user_timeout {
        Some(text) => text
            .parse()
            .map_err(|_| invalid("tcp_user_timeout is no number"))?,
        None => 15_000,
    };
    if milliseconds > 0 {
        config.tcp_user_timeout(Duration::from_millis(milliseconds));
    }
    if let Some(wanted) = own
        .target_session_attrs
        .or_else(|| env("PGTARGETSESSIONATTRS"))
    {
        config.target_session_attrs(match wanted.as_str() {
            "any" | "prefer-standby" => TargetSessionAttrs::Any,
            "read-write" | "primary" => TargetSessionAttrs::ReadWrite,
            "read-only" | "standby" => TargetSessionAttrs::ReadOnly,
            other => return Err(invalid(&format!("target_session_attrs={other} is unknown"))),
        });
    }
    let root = own
        .sslrootcert
        .or_else(|| env("PGSSLROOTCERT"))
        .filter(|r| !r.is_empty());
    let cert = own.sslcert.or_else(|| env("PGSSLCERT"));
    let key = own.sslkey.or_else(|| env("PGSSLKEY"));
    let mode = own.sslmode.or_else(|| env("PGSSLMODE"));
    let system_roots = root.as_deref() == Some("system");
    let default = if system_roots {
        "verify-full"
    } else {
        "prefer"
    };
    let (ssl_mode, verify) = match mode.as_deref().unwrap_or(default) {
        "disable" => (SslMode::Disable, Verify::Nothing),
        "allow" | "prefer" => (SslMode::Prefer, Verify::Nothing),
        // libpq's rule: a named authority is a wish to have it checked.
        "require" if root.is_some() => (SslMode::Require, Verify::Authority),
        "require" => (SslMode::Require, Verify::Nothing),
        "verify-ca" => (SslMode::Require, Verify::Authority),
        "verify-full" => (SslMode::Require, Verify::Full),
        other => return Err(invalid(&format!("sslmode={other} is unknown"))),
    };
    // Postgres has no TLS over unix sockets; libpq ignores sslmode there.
    let only_sockets = config
        .get_hosts()
        .iter()
        .all(|h| matches!(h, Host::Unix(_)));
    let only_sockets = only_sockets && config.get_hostaddrs().is_empty();
    config.ssl_mode(if only_sockets {
        SslMode::Disable
    } else {
        ssl_mode
    });
    Ok(TlsParams {
        verify,
        root_cert: root.filter(|_| !system_roots).map(Into::into),
        cert_and_key: cert.zip(key).map(|(c, k)| (c.into(), k.into())),
    })
}

pub(super) fn invalid(what: &str) -> ConnectError {
    ConnectError::Address(what.to_owned())
}

#[cfg(test)]
#[path = "params_tests.rs"]
mod tests;
