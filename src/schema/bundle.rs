//! What one release brings: its number and its SQL.

use std::fmt;

use sha2::{Digest, Sha256};

use super::manifest;

/// A release number; ordered as numbers, so 1.10.0 is above 1.9.3.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub Vec<i32>);

impl Release {
    /// The release of this binary.
    #[must_use]
    pub fn current() -> Self {
        Self::parse(env!("CARGO_PKG_VERSION"))
    }

    /// The oldest release whose worker may run on the schema of this binary.
    #[must_use]
    pub fn oldest_worker() -> Self {
        Self::parse("0.1.0")
    }

    fn parse(text: &str) -> Self {
        let core = text.split(['-', '+']).next().unwrap_or_default();
        Self(
            core.split('.')
                .map(|part| part.parse().unwrap_or(0))
                .collect(),
        )
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

/// A release number with its SQL: the unit that is installed as a whole or not at all.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The release that the SQL belongs to.
    pub release: Release,
    /// Workers below this release must not run on it.
    pub oldest_worker: Release,
    /// Migrations by file name, in order.
    pub migrations: Vec<(&'static str, &'static str)>,
    /// Restatable SQL by file name, in order.
    pub sql: Vec<(&'static str, &'static str)>,
}

impl Bundle {
    /// What this binary carries.
    #[must_use]
    pub fn current() -> Self {
        Self {
            release: Release::current(),
            oldest_worker: Release::oldest_worker(),
            migrations: manifest::MIGRATIONS.to_vec(),
            sql: manifest::SQL.to_vec(),
        }
    }

    /// SHA-256 over all names and texts, in order.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for list in [&self.migrations, &self.sql] {
            for text in list.iter().flat_map(|(name, text)| [name, text]) {
                // The length first, so that text moved from one file to the next shows.
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text);
            }
            hash.update(u64::MAX.to_be_bytes());
        }
        hex::encode(hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_as_numbers() {
        assert!(Release::parse("1.10.0") > Release::parse("1.9.3"));
        assert_eq!(Release::parse("1.2.3-beta.1").to_string(), "1.2.3");
        assert!(Release::oldest_worker() <= Release::current());
    }

    #[test]
    fn the_digest_sees_every_border() {
        let bundle = |migrations, sql| Bundle {
            migrations,
            sql,
            ..Bundle::current()
        };
        let digests = [
            bundle(vec![], vec![("a", "bc"), ("d", "e")]),
            bundle(vec![], vec![("ab", "c"), ("d", "e")]),
            bundle(vec![], vec![("d", "e"), ("a", "bc")]),
            bundle(vec![("a", "bc")], vec![("d", "e")]),
            bundle(vec![("a", "bc"), ("d", "e")], vec![]),
        ]
        .map(|b| b.digest());
        let distinct: std::collections::HashSet<_> = digests.iter().collect();
        assert_eq!(distinct.len(), digests.len());
    }
}
