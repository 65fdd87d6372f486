//! What the doctor looks at, each check by itself: one that fails hides no other.

use std::time::Duration;

use tokio_postgres::Client;

use super::{Level, Report};
use crate::{
    inspect::{InspectError, questions as ask, value, within},
    schema::{self, Release, State},
};

/// How long one check may take.
const LIMIT: Duration = Duration::from_secs(10);

pub(super) struct Doctor<'a> {
    client: &'a Client,
    pub(super) report: Report,
}

pub(super) async fn all(client: &Client, target: &str) -> Report {
    let mut doctor = Doctor {
        client,
        report: Report::default(),
    };
    doctor.server(target).await;
    if doctor.schema().await {
        doctor.installation().await;
        doctor.partitions().await;
        doctor.work().await;
        doctor.endpoints().await;
        doctor.surroundings().await;
    }
    doctor.report
}

impl Doctor<'_> {
    pub(super) async fn value(&self, question: &str) -> Result<Option<String>, InspectError> {
        within(self.client, LIMIT, value(self.client, question)).await
    }

    /// The answer to a question, or none after noting that there was none to be had on `subject`.
    pub(super) async fn number(&mut self, question: &str, subject: &str) -> Option<i64> {
        match self.value(question).await {
            Ok(answer) => Some(answer.and_then(|t| t.parse().ok()).unwrap_or(0)),
            Err(error) => {
                self.unanswered(subject, &error);
                None
            }
        }
    }

    /// Notes that a check had no answer.
    pub(super) fn unanswered(&mut self, subject: &str, error: &InspectError) {
        match error {
            InspectError::Missing(reason) => self.report.add(
                Level::Fault,
                format!("{reason}, so that whether {subject} cannot be said: was the schema changed by hand?"),
            ),
            InspectError::Privilege(reason) | InspectError::Slow(reason) | InspectError::Postgres(reason) => {
                self.report.add(Level::Unknown, format!("whether {subject}: {reason}"));
            }
        }
    }

    /// What is `fine` without an answer, and at `level` with one.
    pub(super) async fn unless(
        &mut self,
        level: Level,
        question: &str,
        fine: &str,
        found: impl FnOnce(String) -> String,
    ) {
        match self.value(question).await {
            Ok(None) => self.report.add(Level::Ok, fine),
            Ok(Some(answer)) => self.report.add(level, found(answer)),
            Err(error) => self.unanswered(fine, &error),
        }
    }

    async fn server(&mut self, target: &str) {
        let version = self.value(ask::VERSION).await.ok().flatten();
        let version = version.unwrap_or_default();
        let connected = format!("connected to {target}, Postgres {version}");
        self.report.add(Level::Ok, connected);
        self.unless(
            Level::Fault,
            ask::TOO_OLD,
            "the server is new enough",
            |version| format!("the server is of version {version}; Postrider needs 14 or newer"),
        )
        .await;
        self.unless(Level::Fault, ask::NOT_UTF8, "the encoding is UTF8", |encoding| {
            format!("the encoding is {encoding}; Postrider needs UTF8: create the database anew with it")
        })
        .await;
    }

    /// Whether there is a schema to look at.
    async fn schema(&mut self) -> bool {
        let own = Release::current();
        let state = match schema::check(self.client).await {
            Ok(state) => state,
            Err(error) => {
                let text = format!("whether the schema fits this program: {error}");
                self.report.add(Level::Unknown, text);
                return true;
            }
        };
        match &state {
            State::Current => {
                let text = format!("the schema is of release {own}");
                self.report.add(Level::Ok, text);
            }
            State::Missing => {
                let text = "there is no schema postrider: run `postrider migrate`";
                self.report.add(Level::Fault, text);
            }
            State::Older { found } => self.report.add(
                Level::Fault,
                format!("the schema is of release {found}, this program of {own}: run `postrider migrate`"),
            ),
            State::Newer { found, supported } => self.report.add(
                if *supported { Level::Note } else { Level::Fault },
                format!("the schema is of the newer release {found}, this program of {own}: install the newer program"),
            ),
        }
        state != State::Missing
    }

    async fn installation(&mut self) {
        self.unless(Level::Note, ask::MISSING_ROLES, "the four roles exist", |roles| {
            format!("roles are missing: {roles}. Let an administrator create them (create role … nologin), then run: select postrider._grant()")
        })
        .await;
        self.unless(
            Level::Fault,
            ask::MISSING_GRANTS,
            "the roles may do their work",
            |grants| format!("grants are missing: {grants}. Run: select postrider._grant()"),
        )
        .await;
        self.unless(
            Level::Fault,
            ask::PUBLIC_FUNCTIONS,
            "PUBLIC may execute nothing",
            |functions| format!("PUBLIC may execute {functions}. Run: select postrider._grant()"),
        )
        .await;
        self.unless(Level::Fault, ask::TRIGGERS, "the triggers are in place", |triggers| {
            format!("triggers are missing or disabled: {triggers}. Without them nothing wakes the workers, or failures have no effect: enable them, or run `postrider migrate`")
        })
        .await;
        self.unless(
            Level::Note,
            ask::NOTIFY_OFF,
            "commits wake the workers",
            |_| "settings.notify is off: events wait for the workers' poll interval".into(),
        )
        .await;
        self.unless(
            Level::Note,
            ask::SETTINGS_HTTP,
            "endpoints must be https",
            |_| "settings.allow_http is on: payloads may travel unencrypted".into(),
        )
        .await;
    }
}
