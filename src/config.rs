//! The command line. Every flag has an environment twin.

use std::{ffi::OsStr, net::SocketAddr, time::Duration};

use clap::{
    Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    builder::BoolishValueParser,
};
use ipnet::IpNet;

use crate::delivery::address::parse_network;

/// Shortest lease: with less, a slow disk or a busy machine would cost the lease.
const SHORTEST_LEASE: Duration = Duration::from_secs(3);

const AFTER_HELP: &str = "\
First steps:
  postrider demo                       see it work, without touching any database of yours
  export DATABASE_URL=postgres://owner:secret@host/app
  postrider migrate                    install the schema `postrider` (one transaction)
  postrider worker                     deliver; start as many as you like
  psql \"$DATABASE_URL\" -c \"select * from postrider.create_endpoint('https://example.com/hooks')\"
  psql \"$DATABASE_URL\" -c \"select postrider.emit_event('invoice.paid', '{\\\"id\\\":\\\"in_1\\\"}')\"
  postrider status                     what is waiting, and for what
  postrider doctor                     what is wrong, if anything

Exit status: 0 done; 1 failed, or doctor found a fault or could not look; 2 the command line cannot be read;
3 the schema does not fit this release; 130 told a second time to stop.";

/// Delivers webhooks from Postgres: emitted in your transaction, signed, paced, retried, visible in SQL.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How logs are written, to standard error.
    #[arg(
        long,
        global = true,
        env = "POSTRIDER_LOG_FORMAT",
        default_value = "text"
    )]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug, or a filter such as `postrider=debug,hyper=info`; by default
    /// warnings, and what Postrider itself has to say.
    #[arg(long, global = true, env = "POSTRIDER_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

impl Cli {
    /// Reads the command line and the environment; prints what is wrong, or the help asked for, and exits.
    #[must_use]
    pub fn read() -> Self {
        let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
        let matches = without(Self::command(), &is_empty).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// The command without the environment twins named by `unset`. An empty variable counts as one that is not set, as
/// libpq has it: `${LIMIT:-}` is empty.
fn without(command: clap::Command, unset: &dyn Fn(&OsStr) -> bool) -> clap::Command {
    command
        .mut_args(|arg| match arg.get_env() {
            Some(name) if unset(name) => arg.env(None::<&'static str>),
            _ => arg,
        })
        .mut_subcommands(|command| without(command, unset))
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// A JSON object a line.
    Json,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Install or upgrade the schema, in one transaction.
    ///
    /// Safe to run from ten machines at once: one upgrades, the others wait and find nothing to do. Emits are
    /// never held up for longer than 200 ms. A schema of a newer release is left as it is.
    Migrate {
        /// The database.
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Deliver webhooks until told to stop.
    ///
    /// Start as many as you like, on as many machines; they share the endpoints among themselves. On SIGTERM or
    /// Ctrl-C no new request starts, those under way finish and are reported, and the endpoints are released; a
    /// second signal ends it at once. Its role needs `postrider_worker` and no more.
    Worker(Box<WorkerArgs>),
    /// Show the specification's own scenario live: a private Postgres, two workers and a hostile receiver.
    ///
    /// Touches no database but its own, takes under a minute, and exits 1 if anything did not hold.
    Demo,
    /// Start a private Postgres, a worker and a receiver that stay up, and print how to use them.
    Dev,
    /// Say what is wrong with this installation, if anything; exits 1 on a fault, or where it could not look.
    ///
    /// Run it as the owner of the schema: other roles may not see enough.
    Doctor {
        /// The database.
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Show queue, workers and endpoints, those in trouble first.
    Status {
        /// The database.
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

/// Which database.
#[derive(Debug, Args)]
pub struct DatabaseArgs {
    /// A postgres:// URL or key=value pairs; without it, the PG* variables.
    ///
    /// sslmode goes up to verify-full, with sslrootcert; several hosts may be given, with
    /// target_session_attrs=read-write.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: Option<String>,
}

/// How a worker works.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The database.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Install or upgrade the schema first; needs its owner's rights.
    #[arg(long, env = "POSTRIDER_MIGRATE", value_parser = BoolishValueParser::new())]
    pub migrate: bool,
    /// A direct connection for LISTEN, when the other one goes through a transaction-pooling proxy.
    #[arg(
        long,
        env = "POSTRIDER_LISTEN_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub listen_url: Option<String>,
    /// A network that requests may go to although it is loopback, private or reserved. May be repeated.
    #[arg(long, env = "POSTRIDER_ALLOW_NETWORK", value_name = "CIDR", value_delimiter = ',', value_parser = network)]
    pub allow_network: Vec<IpNet>,
    /// Most requests open at once.
    #[arg(long, env = "POSTRIDER_MAX_IN_FLIGHT", default_value = "500", value_parser = count, value_name = "N")]
    pub max_in_flight: usize,
    /// How often to look for work without being told.
    #[arg(long, env = "POSTRIDER_POLL_INTERVAL", default_value = "5s", value_parser = interval, value_name = "TIME")]
    pub poll_interval: Duration,
    /// How long a silent worker keeps its endpoints; it beats six times as often. The same for all workers.
    #[arg(long, env = "POSTRIDER_LEASE", default_value = "30s", value_parser = lease, value_name = "TIME")]
    pub lease: Duration,
    /// Database connections for calls; heartbeats and LISTEN have one each of their own.
    #[arg(long, env = "POSTRIDER_POOL_SIZE", default_value = "4", value_parser = count, value_name = "N")]
    pub pool_size: usize,
    /// Serve /metrics, /livez and /readyz on this address, such as 127.0.0.1:9464.
    #[arg(long, env = "POSTRIDER_ADMIN_LISTEN", value_name = "ADDRESS")]
    pub admin_listen: Option<SocketAddr>,
    /// What to call this worker in status; by default host and process id.
    #[arg(long, env = "POSTRIDER_NAME", value_name = "NAME")]
    pub name: Option<String>,
}

fn network(text: &str) -> Result<IpNet, String> {
    parse_network(text).map_err(|e| e.to_string())
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=100_000).contains(&n) => Ok(n),
        _ => Err("it takes a whole number from 1 to 100000".into()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|e| format!("{e}; write it like 15s or 500ms"))
}

fn interval(text: &str) -> Result<Duration, String> {
    let parsed = duration(text)?;
    if (Duration::from_millis(10)..=Duration::from_secs(3600)).contains(&parsed) {
        Ok(parsed)
    } else {
        Err("it takes a time from 10ms to 1h".into())
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    let parsed = duration(text)?;
    if (SHORTEST_LEASE..=Duration::from_secs(3600)).contains(&parsed) {
        Ok(parsed)
    } else {
        Err(format!(
            "a lease takes a time from {SHORTEST_LEASE:?} to 1h: a worker beats six times in it"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn worker(args: &[&str]) -> Result<WorkerArgs, String> {
        let all = [&["postrider", "worker"], args].concat();
        match Cli::try_parse_from(all).map_err(|e| e.to_string())?.command {
            Command::Worker(args) => Ok(*args),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn every_flag_of_the_worker_has_an_environment_twin() {
        let command = Cli::command();
        let worker = command.find_subcommand("worker").unwrap();
        for arg in worker.get_arguments().filter(|a| a.get_id() != "help") {
            assert!(arg.get_env().is_some(), "{}", arg.get_id());
        }
    }

    #[test]
    fn an_empty_variable_is_one_that_is_not_set() {
        let empty = |name: &OsStr| name == "POSTRIDER_ADMIN_LISTEN" || name == "POSTRIDER_LOG";
        let command = without(Cli::command(), &empty);
        let env = |command: &clap::Command, id: &str| {
            let mut args = command.get_arguments();
            args.find(|a| a.get_id() == id).unwrap().get_env().is_some()
        };
        let worker = command.find_subcommand("worker").unwrap();
        assert!(!env(&command, "log"));
        assert!(!env(worker, "admin_listen"));
        assert!(env(worker, "listen_url"));
    }

    #[test]
    fn values_are_read_strictly() {
        let parsed = worker(&[
            "--poll-interval",
            "500ms",
            "--allow-network",
            "10.0.0.0/8,fd00::/8",
        ])
        .unwrap();
        assert_eq!(parsed.poll_interval, Duration::from_millis(500));
        assert_eq!(parsed.allow_network.len(), 2);
        assert_eq!(
            (parsed.max_in_flight, parsed.lease),
            (500, Duration::from_secs(30))
        );
        for bad in [
            ["--lease", "1s"],
            ["--lease", "soon"],
            ["--max-in-flight", "0"],
            ["--poll-interval", "0s"],
            ["--allow-network", "10.0.0.0/33"],
            ["--allow-network", "10.0.0.0/8, fd00::/8"],
        ] {
            let error = worker(&bad).unwrap_err();
            assert!(error.contains(bad[0]), "{error}");
        }
    }
}
