//! `postrider doctor`: what is wrong with an installation, if anything, and the way out.

mod checks;
mod running;

use std::fmt;

use crate::{connect::Database, error::Error};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// It could not be looked at.
    Unknown,
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
    /// Whether all could be looked at and nothing is at fault.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.count(Level::Fault) + self.count(Level::Unknown) == 0
    }

    fn count(&self, level: Level) -> usize {
        self.0.iter().filter(|f| f.level == level).count()
    }

    fn add(&mut self, level: Level, text: impl Into<String>) {
        self.0.push(Finding {
            level,
            text: text.into(),
        });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.0 {
            let mark = match finding.level {
                Level::Ok => "ok   ",
                Level::Note => "note ",
                Level::Unknown => "?    ",
                Level::Fault => "FAULT",
            };
            writeln!(f, "{mark}  {}", finding.text)?;
        }
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let (faults, notes) = (self.count(Level::Fault), self.count(Level::Note));
        write!(
            f,
            "{faults} fault{}, {notes} note{}",
            plural(faults),
            plural(notes)
        )?;
        match self.count(Level::Unknown) {
            0 => Ok(()),
            unknown => write!(
                f,
                ", {unknown} not looked at; the owner of the schema may look at all"
            ),
        }
    }
}

/// Looks at everything. What cannot be looked at is a finding like any other; only a missing connection is an error.
pub async fn examine(database: &Database) -> Result<Report, Error> {
    let client = database.named("postrider doctor").connect().await?;
    Ok(checks::all(&client, &database.target()).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn healthy_only_when_all_was_seen_and_nothing_is_at_fault() {
        let mut report = Report::default();
        report.add(Level::Ok, "a");
        report.add(Level::Note, "b");
        assert!(report.is_healthy());
        assert!(report.to_string().ends_with("0 faults, 1 note"));
        report.add(Level::Unknown, "c");
        assert!(!report.is_healthy());
        assert!(report.to_string().contains("1 not looked at"));
        let faulty = Report(vec![Finding {
            level: Level::Fault,
            text: "d".into(),
        }]);
        assert!(!faulty.is_healthy());
        assert_eq!(faulty.to_string(), "FAULT  d\n1 fault, 0 notes");
    }
}
