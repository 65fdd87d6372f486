//! `postrider doctor`: what is wrong with an installation, if anything, and the way out.

use std::{fmt, time::SystemTime};

use tokio_postgres::Client;

use crate::{
    connect::Database,
    error::Error,
    inspect::{InspectError, questions as ask, value},
    schema::{self, Release, State},
};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// A fault: something is not delivered, or will not be.
    Fault,
}

/// One thing looked at.
#[derive(Debug)]
pub struct Finding {
    /// How bad.
    pub level: Level,
    /// What was found, and the way out.
    pub text: String,
}

/// All that was found.
#[derive(Debug, Default)]
pub struct Report(pub Vec<Finding>);

impl Report {
    /// Whether nothing is at fault.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.0.iter().all(|f| f.level != Level::Fault)
    }

    fn add(&mut self, level: Level, text: impl Into<String>) {
        self.0.push(Finding {
            level,
            text: text.into(),
        });
    }

    /// What is fine without an answer and at `level` with one.
    fn unless(
        &mut self,
        level: Level,
        answer: Option<String>,
        fine: &str,
        found: impl FnOnce(String) -> String,
    ) {
        match answer {
            None => self.add(Level::Ok, fine),
            Some(answer) => self.add(level, found(answer)),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.0 {
            let mark = match finding.level {
                Level::Ok => "ok   ",
                Level::Note => "note ",
                Level::Fault => "FAULT",
            };
            writeln!(f, "{mark}  {}", finding.text)?;
        }
        let count = |level| self.0.iter().filter(|f| f.level == level).count();
        write!(
            f,
            "{} faults, {} notes",
            count(Level::Fault),
            count(Level::Note)
        )
    }
}

/// Looks at everything.
pub async fn examine(database: &Database) -> Result<Report, Error> {
    let client = database.connect().await?;
    let mut report = Report::default();
    let version = value(&client, ask::VERSION).await?.unwrap_or_default();
    report.add(
        Level::Ok,
        format!("connected to {}, Postgres {version}", database.target()),
    );
    let encoding = value(&client, ask::ENCODING).await?.unwrap_or_default();
    if encoding != "UTF8" {
        report.add(Level::Fault, format!("the database's encoding is {encoding}; Postrider needs UTF8: create the database anew with encoding UTF8"));
    }
    let own = Release::current();
    match schema::check(&client).await? {
        State::Current => report.add(Level::Ok, format!("the schema is of release {own}")),
        State::Missing => {
            report.add(
                Level::Fault,
                "there is no schema postrider: run `postrider migrate`",
            );
            return Ok(report);
        }
        State::Older { found } => report.add(
            Level::Fault,
            format!(
                "the schema is of release {found}, this program of {own}: run `postrider migrate`"
            ),
        ),
        State::Newer { found, supported } => {
            let level = if supported { Level::Note } else { Level::Fault };
            report.add(level, format!("the schema is of the newer release {found}, this program of {own}: install the newer program"));
        }
    }
    installation(&client, &mut report).await?;
    partitions(&client, &mut report).await?;
    work(&client, &mut report).await?;
    surroundings(&client, &mut report).await?;
    Ok(report)
}

async fn installation(client: &Client, report: &mut Report) -> Result<(), InspectError> {
    report.unless(Level::Note, value(client, ask::MISSING_ROLES).await?, "the four roles exist", |roles| {
        format!("roles are missing: {roles}. Let an administrator create them (create role … nologin), then run: select postrider._grant()")
    });
    report.unless(
        Level::Fault,
        value(client, ask::PUBLIC_FUNCTIONS).await?,
        "PUBLIC may execute nothing",
        |functions| format!("PUBLIC may execute {functions}: run `select postrider._grant()`"),
    );
    report.unless(Level::Fault, value(client, ask::TRIGGERS).await?, "the triggers are in place", |triggers| {
        format!("triggers are missing or disabled: {triggers}. Without them nothing wakes the workers, or failures have no effect: enable them, or run `postrider migrate`")
    });
    report.unless(
        Level::Note,
        value(client, ask::NOTIFY_OFF).await?,
        "commits wake the workers",
        |_| "settings.notify is off: events wait for the workers' poll interval".into(),
    );
    report.unless(
        Level::Note,
        value(client, ask::SETTINGS_HTTP).await?,
        "endpoints must be https",
        |_| "settings.allow_http is on: payloads may travel unencrypted".into(),
    );
    Ok(())
}

async fn partitions(client: &Client, report: &mut Report) -> Result<(), InspectError> {
    let ahead = value(client, ask::LEAVES_AHEAD)
        .await?
        .and_then(|days| days.parse::<i64>().ok());
    match ahead {
        Some(days) if days >= 7 => report.add(Level::Ok, format!("partitions are there for {days} days ahead")),
        Some(days) => report.add(Level::Fault, format!("partitions are there for only {days} days ahead: are workers running? They make them; or run: select postrider.maintain(true)")),
        None => report.add(Level::Fault, "there are no daily partitions: run `select postrider.maintain(true)`"),
    }
    report.unless(Level::Note, value(client, ask::STRAYS).await?, "no row is in a default partition", |rows| {
        format!("{rows} rows are in default partitions: maintain moves them to their day; if they stay, select postrider.maintain() says what it waits for")
    });
    let number = |text: Option<String>| text.and_then(|t| t.parse::<i64>().ok()).unwrap_or(0);
    let leaves = number(value(client, ask::LEAVES).await?);
    let locks = number(value(client, ask::LOCK_TABLE).await?);
    // An unbounded query locks each leaf with its index.
    if leaves * 2 * 4 > locks {
        report.add(Level::Note, format!("{leaves} partitions and room for {locks} locks: a few queries over all days at once could fill the lock table; raise max_locks_per_transaction"));
    } else {
        report.add(
            Level::Ok,
            format!("{leaves} partitions, room for {locks} locks"),
        );
    }
    Ok(())
}

async fn work(client: &Client, report: &mut Report) -> Result<(), InspectError> {
    let workers = value(client, ask::LIVE_WORKERS).await?.unwrap_or_default();
    let waiting = value(client, ask::OUTBOX_AGE).await?;
    if workers == "0" {
        let level = if waiting.is_some() {
            Level::Fault
        } else {
            Level::Note
        };
        report.add(
            level,
            "no worker has beaten within a minute: start one with `postrider worker`",
        );
    } else {
        report.add(Level::Ok, format!("{workers} workers beat"));
    }
    report.unless(Level::Fault, waiting, "events are fanned out as they come", |age| {
        format!("the oldest event not fanned out is {age} old: are workers running, and what do they log?")
    });
    report.unless(Level::Note, value(client, ask::OLDEST_DUE).await?, "no delivery has been due for long", |age| {
        format!("a delivery has been due for {age}: endpoints are slower than their events, or workers too few; see postrider.endpoint_health")
    });
    report.unless(
        Level::Note,
        value(client, ask::DISABLED).await?,
        "no endpoint is disabled",
        |ids| {
            format!(
                "endpoints are disabled: {ids}. Once mended: select postrider.enable_endpoint(id)"
            )
        },
    );
    report.unless(
        Level::Note,
        value(client, ask::ALERTS).await?,
        "no alert is open",
        |count| {
            format!(
                "{count} alerts are open: select * from postrider.alerts where dismissed_at is null"
            )
        },
    );
    report.unless(Level::Note, value(client, ask::LAPSES).await?, "no endpoint is held back after lost leases", |ids| {
        format!("workers vanished again and again while they owned endpoints (lapses): {ids}. Look at why workers die")
    });
    Ok(())
}

async fn surroundings(client: &Client, report: &mut Report) -> Result<(), InspectError> {
    report.unless(Level::Note, value(client, ask::LONG_TRANSACTIONS).await?, "no transaction is open for long", |found| {
        format!("transactions are open for over ten minutes and keep dead rows of the queue alive: {found}")
    });
    report.unless(
        Level::Note,
        value(client, ask::PREPARED).await?,
        "no prepared transaction is left over",
        |found| {
            format!("prepared transactions are left over: {found}. Commit them or roll them back")
        },
    );
    report.unless(
        Level::Note,
        value(client, ask::SLOTS).await?,
        "no replication slot is inactive",
        |found| format!("replication slots are inactive and may keep dead rows and WAL: {found}"),
    );
    report.unless(Level::Note, value(client, ask::SYNCHRONOUS).await?, "commits are durable", |_| {
        "synchronous_commit is off: a crash may lose the last emits; what was sent is always durable first".into()
    });
    let clock = value(client, ask::CLOCK)
        .await?
        .and_then(|t| t.parse::<f64>().ok());
    let here = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map(|d| d.as_secs_f64());
    if let (Some(there), Ok(here)) = (clock, here)
        && (there - here).abs() > 5.0
    {
        report.add(Level::Note, format!("the database's clock is {:.0} s {} this machine's; Postrider goes by the database's, receivers compare signatures with their own", (there - here).abs(), if there > here { "ahead of" } else { "behind" }));
    }
    Ok(())
}
