//! What the actors share: the server, the receiver, the clock, and the log of what was done.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use postrider::connect::Database;
use postrider::embedded::Embedded;
use postrider::schema;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::audit::evidence::{Emitted, Freeze, Stopped};
use crate::endpoints::Created;
use crate::receivers::Receivers;

/// How long a silent worker keeps its endpoints.
pub const LEASE_S: u64 = 6;
/// The time-out of requests; less than a lease, so that a take-over is told from a time-out.
pub const REQUEST_TIMEOUT_S: u64 = 3;
/// As many as one fault opens.
pub const MAX_CONNECTIONS: usize = 300;

const SETTINGS: &[(&str, &str)] = &[("max_connections", "300"), ("log_min_messages", "warning")];

const PASSWORD: &str = "soak";

const PREPARE: &str = "
    create role soak_app login password 'soak' in role postrider_emitter;
    create role soak_worker login password 'soak' in role postrider_worker;
    create role soak_operator login password 'soak' in role postrider_operator, postrider_reader;
    create role soak_idle login;
    update postrider.settings set allow_http = true;
    insert into postrider.policies
    select (jsonb_populate_record(p, o.changes)).*
      from postrider.policies p,
           (values ('{\"name\": \"soak\"}'::jsonb),
                   ('{\"name\": \"soak_skips\", \"when_disabled\": \"skip\", \"max_attempts\": 3, \"backoff_jitter\": \"none\",
                      \"retry_statuses\": \"{[100,200),[300,429),[430,1000)}\"}'),
                   ('{\"name\": \"soak_brief\", \"time_to_live\": \"15 s\"}')) c (own),
           lateral (select jsonb '{\"connect_timeout\": \"1 s\", \"request_timeout\": \"3 s\", \"backoff_base\": \"200 ms\",
                      \"backoff_factor\": 2, \"backoff_cap\": \"4 s\", \"max_attempts\": 8, \"disable_after\": null,
                      \"pause_default\": \"1 s\", \"pause_max\": \"3 s\"}' || c.own as changes) o
     where p.name = 'patient';
    insert into postrider.policy_rungs (policy, rung, failures, failing_for, pause)
    select p.name, r.rung, r.rung * 8, '0', r.pause
      from postrider.policies p, (values (1, interval '2 s'), (2, '4 s'), (3, null)) r (rung, pause)
     where p.name like 'soak%'";

/// What was done.
#[derive(Default)]
pub struct Log {
    pub endpoints: Vec<Created>,
    pub emitted: Vec<Emitted>,
    pub replayed: HashSet<(Uuid, i64)>,
    pub freezes: Vec<Freeze>,
    pub stopped: Vec<Stopped>,
    /// Workers that ended as they should not.
    pub workers: Vec<String>,
    /// Idle connections at once.
    pub most_idle: usize,
    pub counts: BTreeMap<&'static str, usize>,
}

impl Log {
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

/// The world of one run.
pub struct World {
    pub seed: u64,
    pub server: Embedded,
    pub receivers: Receivers,
    start: Instant,
    start_at: SystemTime,
    end: Instant,
    log: Mutex<Log>,
}

impl World {
    /// Starts everything but the workers.
    pub async fn start(seed: u64, length: Duration) -> Self {
        let server = Embedded::start(SETTINGS).await.unwrap();
        let database = Database::new(Some(&server.url("postgres"))).unwrap();
        schema::migrate(&database).await.unwrap();
        database
            .connect()
            .await
            .unwrap()
            .batch_execute(PREPARE)
            .await
            .unwrap();
        let receivers = Receivers::start(seed).await;
        let start = Instant::now();
        Self {
            seed,
            server,
            receivers,
            start,
            start_at: SystemTime::now(),
            end: start + length,
            log: Mutex::default(),
        }
    }

    /// Seconds since the start.
    pub fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// The same of an instant.
    pub fn time(&self, at: Instant) -> f64 {
        at.duration_since(self.start).as_secs_f64()
    }

    /// The start by the wall clock, which is also the database's, in seconds since 1970.
    pub fn epoch(&self) -> f64 {
        let since = self.start_at.duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0.0, |t| t.as_secs_f64())
    }

    /// Whether the time for faults is over.
    pub fn over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Sleeps, but not beyond the end; false when it is over.
    pub async fn sleep(&self, time: Duration) -> bool {
        tokio::time::sleep_until((Instant::now() + time).min(self.end).into()).await;
        !self.over()
    }

    /// Looks at the log, or adds to it.
    pub fn note<T>(&self, what: impl FnOnce(&mut Log) -> T) -> T {
        what(&mut self.log.lock().unwrap())
    }

    /// The URL of the database for a role.
    pub fn url(&self, role: &str) -> String {
        format!(
            "postgres://{role}:{PASSWORD}@127.0.0.1:{}/postgres",
            self.server.port()
        )
    }

    /// A connection of a role, if one is to be had.
    pub async fn connect(&self, role: &str) -> Option<Client> {
        let database = Database::new(Some(&self.url(role))).unwrap();
        database.named("soak").connect().await.ok()
    }

    /// A connection of the superuser, if one is to be had.
    pub async fn connect_superuser(&self) -> Option<Client> {
        let database = Database::new(Some(&self.server.socket_url("postgres"))).unwrap();
        database.named("soak").connect().await.ok()
    }
}
