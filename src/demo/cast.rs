//! Who takes part: the specification's endpoint, and the five that the real payloads go to.

use std::sync::Arc;
use std::time::Duration;

use super::receiver::{Answer, Script};

/// The tenant of the specification's scenario.
pub const SPEC: &str = "spec";
/// The tenant of the real payloads.
pub const GITHUB: &str = "github";
/// The policy of the specification's endpoint.
pub const POLICY: &str = "demo";
/// First wait of that policy, in seconds; `patient` has 30.
pub const BACKOFF_S: u32 = 2;
/// How long the slow endpoint takes to answer.
pub const SLOW: Duration = Duration::from_millis(900);

/// A signature style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `t=…,v1=<hex>`.
    Stripe,
    /// `v1,<base64>`.
    Standard,
}

impl Style {
    /// What `create_endpoint` calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::Standard => "standard",
        }
    }
}

/// What an endpoint is for in the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Answers 500, 429 and 200.
    Spec,
    /// Answers 200 at once.
    Fast,
    /// Answers 200 after a while.
    Slow,
    /// Answers 422.
    Refusing,
}

/// An endpoint before it is created.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its path and its name on screen.
    pub name: &'static str,
    /// What it is for.
    pub role: Role,
    /// Whose it is.
    pub tenant: &'static str,
    /// What it subscribes to.
    pub event_types: Vec<&'static str>,
    /// Its delivery policy.
    pub policy: &'static str,
    /// Its own pace, if not the policy's.
    pub rate: Option<i32>,
    /// Its own burst.
    pub burst: Option<i32>,
    /// Its own limit of open requests.
    pub concurrency: Option<i32>,
    /// How its requests are signed.
    pub style: Style,
    /// For people.
    pub description: &'static str,
}

/// An endpoint, created.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its id.
    pub id: i64,
    /// Its signing secret.
    pub secret: String,
    /// What it was made from.
    pub part: Part,
}

impl Part {
    /// Whether an event of `tenant` and `event_type` is for it; says again what fan_out does.
    #[must_use]
    pub fn wants(&self, tenant: &str, event_type: &str) -> bool {
        let matches = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(prefix) => event_type.starts_with(prefix),
            None => event_type == *pattern,
        };
        self.tenant == tenant && self.event_types.iter().any(matches)
    }

    /// What the receiver does at its path.
    #[must_use]
    pub fn answer(&self, script: &Arc<Script>) -> Answer {
        match self.role {
            Role::Spec => Answer::Script(Arc::clone(script)),
            Role::Fast => Answer::Accept,
            Role::Slow => Answer::Slow(SLOW),
            Role::Refusing => Answer::Refuse,
        }
    }
}

/// The endpoint of the specification's scenario.
///
/// One request at a time, so that a queue stands behind the open request, and none can be under way
/// when the 429 leaves: the check needs no allowance.
#[must_use]
pub fn spec() -> Part {
    Part {
        name: "hostile",
        role: Role::Spec,
        tenant: SPEC,
        event_types: vec!["invoice.*"],
        policy: POLICY,
        rate: None,
        burst: None,
        concurrency: Some(1),
        style: Style::Stripe,
        description: "500, then 429, then 200",
    }
}

/// The endpoints of the real payloads.
#[must_use]
pub fn github() -> Vec<Part> {
    let part = |name, role, style, event_types: &[&'static str], description| Part {
        name,
        role,
        tenant: GITHUB,
        event_types: event_types.to_vec(),
        policy: "patient",
        rate: Some(500),
        burst: Some(100),
        concurrency: Some(20),
        style,
        description,
    };
    let slow = part(
        "slow",
        Role::Slow,
        Style::Standard,
        &["issues.*", "issue_comment.*", "discussion.*"],
        "answers after 900 ms",
    );
    vec![
        part(
            "archive",
            Role::Fast,
            Style::Stripe,
            &["*"],
            "takes everything",
        ),
        part(
            "reviews",
            Role::Fast,
            Style::Standard,
            &[
                "pull_request.*",
                "pull_request_review.*",
                "pull_request_review_comment.*",
                "pull_request_review_thread.*",
            ],
            "pull requests and their reviews",
        ),
        part(
            "releases",
            Role::Fast,
            Style::Stripe,
            &[
                "push",
                "create",
                "delete",
                "release.*",
                "deployment.*",
                "package.*",
            ],
            "what is pushed and released",
        ),
        Part {
            concurrency: Some(4),
            ..slow
        },
        part(
            "refusing",
            Role::Refusing,
            Style::Standard,
            &[
                "check_run.*",
                "check_suite.*",
                "workflow_run.*",
                "workflow_job.*",
            ],
            "answers 422",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_fan_out() {
        let [archive, _, releases, ..] = &github()[..] else {
            panic!()
        };
        assert!(archive.wants(GITHUB, "push"));
        assert!(!archive.wants(SPEC, "push"));
        assert!(releases.wants(GITHUB, "push"));
        assert!(releases.wants(GITHUB, "release.published"));
        assert!(!releases.wants(GITHUB, "release"));
        assert!(!releases.wants(GITHUB, "deployment_status.created"));
    }
}
