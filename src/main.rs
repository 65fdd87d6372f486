//! The program: reads the command line and calls the library.

use std::time::Duration;
use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
};

use postrider::{
    admin::{self, Telemetry},
    config::{Cli, Command, LogFormat, WorkerArgs},
    connect::Database,
    delivery::Resolver,
    demo, doctor,
    error::Error,
    inspect,
    schema::{self, Migrated, Release, State},
    status, worker,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::read();
    let shown = matches!(cli.command, Command::Demo | Command::Dev);
    let filter = cli.log.as_deref().unwrap_or(if shown {
        "error"
    } else {
        "warn,postrider=info"
    });
    let filter = match EnvFilter::try_new(filter) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("postrider: --log: {error}");
            return ExitCode::from(2);
        }
    };
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_writer(std::io::stderr);
    match cli.log_format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
    match run(cli.command).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("postrider: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}

/// Runs a command; false if it ran and found that not all is well.
async fn run(command: Command) -> Result<bool, Error> {
    match command {
        Command::Migrate { database } => {
            let database = Database::new(database.database_url.as_deref())?;
            say(&migrate(&database).await?);
            Ok(true)
        }
        Command::Worker(args) => deliver(*args).await.map(|()| true),
        Command::Demo => Ok(demo::run().await?),
        Command::Dev => Ok(demo::dev().await.map(|()| true)?),
        Command::Doctor { database } => {
            let database = Database::new(database.database_url.as_deref())?;
            let report = doctor::examine(&database).await?;
            say(&report.to_string());
            Ok(report.is_healthy())
        }
        Command::Status { database } => {
            let database = Database::new(database.database_url.as_deref())?;
            let client = database.connect().await?;
            say(&status::render(&client).await?);
            Ok(true)
        }
    }
}

/// Prints a line, unless whoever reads has had enough.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

async fn migrate(database: &Database) -> Result<String, Error> {
    let own = Release::current();
    let done = match schema::migrate(database).await? {
        Migrated::Installed => format!("Installed release {own} in {}.", database.target()),
        Migrated::Upgraded { from } => format!(
            "Upgraded {} from release {from} to {own}.",
            database.target()
        ),
        Migrated::Unchanged => format!("{} has release {own} already.", database.target()),
        Migrated::Newer { found } => {
            format!(
                "{} has the newer release {found}; left as it is.",
                database.target()
            )
        }
    };
    // An installer that may not create roles goes on without them; whoever reads this must know.
    let client = database.connect().await?;
    Ok(match inspect::missing_roles(&client).await? {
        Some(roles) => format!(
            "{done}\nRoles are missing, and {} may not create them: {roles}. Let an administrator run \
             `create role <name> nologin` for each, and then the schema's owner `select postrider._grant()`.",
            database.target()
        ),
        None => done,
    })
}

async fn deliver(args: WorkerArgs) -> Result<(), Error> {
    let database = Database::new(args.database.database_url.as_deref())?;
    let listen = args
        .listen_url
        .as_deref()
        .map(|url| Database::new(Some(url)))
        .transpose()?;
    let mut stopped = obey_signals()?;
    let telemetry = Arc::new(Telemetry::new());
    if let Some(address) = args.admin_listen {
        let listener = tokio::net::TcpListener::bind(address).await;
        let listener = listener.map_err(|source| Error::AdminListen { address, source })?;
        tracing::info!(%address, "serving /metrics, /livez and /readyz");
        tokio::spawn(admin::serve(
            listener,
            telemetry.clone(),
            database.clone(),
            args.lease,
        ));
    }
    // A migration that is broken off is rolled back.
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stop| *stop) => return Ok(()),
        ready = prepare(&database, args.migrate) => ready?,
    }
    let options = worker::Options {
        name: args.name.unwrap_or_else(worker::default_name),
        max_in_flight: args.max_in_flight,
        poll_interval: args.poll_interval,
        lease: args.lease,
        pool_size: args.pool_size,
        allow_networks: args.allow_network,
        listen,
        resolver: Resolver::default(),
        drain_limit: worker::DRAIN_LIMIT,
    };
    Ok(worker::run(database, options, telemetry, stopped).await?)
}

/// Turns true at the first SIGTERM or Ctrl-C; the second one ends the process.
fn obey_signals() -> Result<watch::Receiver<bool>, Error> {
    let (stop, stopped) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: no new request; those under way finish and are reported");
        let _ = stop.send(true);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("stopped at once; other workers take over when the lease ends");
        std::process::exit(130);
    });
    Ok(stopped)
}

/// Waits for a server that is not there yet, as a worker at work does. What a person must mend ends it at once.
async fn prepare(database: &Database, install: bool) -> Result<(), Error> {
    let mut delay = Duration::from_millis(100);
    loop {
        let error = match prepare_once(database, install).await {
            Err(error) if error.is_passing() => error,
            done => return done,
        };
        tracing::warn!(%error, "the database cannot be used yet; trying again");
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(Duration::from_secs(5));
    }
}

async fn prepare_once(database: &Database, install: bool) -> Result<(), Error> {
    if install {
        tracing::info!("{}", migrate(database).await?);
    }
    check_schema(database).await
}

/// Refuses to work on a schema that this release does not fit.
async fn check_schema(database: &Database) -> Result<(), Error> {
    let own = Release::current().to_string();
    let client = database.connect().await?;
    match schema::check(&client).await? {
        State::Current => Ok(()),
        State::Missing => Err(Error::SchemaTooOld {
            found: "no schema postrider".into(),
            own,
        }),
        State::Older { found } => Err(Error::SchemaTooOld {
            found: format!("the schema of release {found}"),
            own,
        }),
        State::Newer {
            found,
            supported: true,
        } => {
            tracing::warn!(%found, %own, "the schema is of a newer release; install the newer program soon");
            Ok(())
        }
        State::Newer {
            found,
            supported: false,
        } => Err(Error::SchemaTooNew {
            found: found.to_string(),
            own,
        }),
    }
}
