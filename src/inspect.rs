//! Every statement that looking at an installation sends: `status`, `doctor`, the gauges of the admin server.

use std::time::Duration;

use tokio_postgres::{Client, Row};

/// Why looking failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InspectError {
    /// The role may not.
    #[error(
        "{0}: a role with postrider_reader sees queue and endpoints; the schema's owner sees all"
    )]
    Privilege(String),
    /// The schema is not there.
    #[error("{0}: is the schema installed? Run `postrider migrate`")]
    Missing(String),
    /// It took longer than it may.
    #[error("{0}: there is too much to look at in that time, or the database is busy")]
    Slow(String),
    /// Anything else.
    #[error("{0}")]
    Postgres(String),
}

impl From<tokio_postgres::Error> for InspectError {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = crate::connect::explain(&error);
        match error.code().map(|c| c.code()) {
            Some("42501") => Self::Privilege(text),
            Some("42P01" | "3F000" | "42883") => Self::Missing(text),
            Some("57014") => Self::Slow(text),
            _ => Self::Postgres(text),
        }
    }
}

/// Runs `look` in a read-only transaction whose statements the *server* ends after `limit`: whoever merely stops
/// waiting leaves the statement running, and the next look adds another.
pub(crate) async fn within<T>(
    client: &Client,
    limit: Duration,
    look: impl Future<Output = Result<T, InspectError>>,
) -> Result<T, InspectError> {
    let begin = format!(
        "begin transaction isolation level read committed read only; set local statement_timeout = {}",
        limit.as_millis().max(1)
    );
    client.batch_execute(&begin).await?;
    let found = look.await;
    client.batch_execute("rollback").await?;
    found
}

/// The view `queue_depth`.
#[derive(Debug, Clone, Default)]
pub struct Depth {
    /// Events not fanned out yet.
    pub outbox: i64,
    /// Deliveries that may be sent now.
    pub due: i64,
    /// Deliveries owed, not now.
    pub later: i64,
    /// How long the oldest of those due has been due.
    pub oldest_due_age: Duration,
    /// Endpoints sent to.
    pub active: i64,
    /// Endpoints paused or rate-limited.
    pub paused: i64,
    /// Endpoints disabled.
    pub disabled: i64,
    /// Workers registered.
    pub workers: i64,
}

/// Reads the view `queue_depth`.
pub async fn depth(client: &Client) -> Result<Depth, InspectError> {
    let row = client
        .query_typed_one(
            "select outbox, due, later, coalesce(extract(epoch from oldest_due_age), 0)::float8,
                    endpoints_active, endpoints_paused, endpoints_disabled, workers
               from postrider.queue_depth",
            &[],
        )
        .await?;
    Ok(Depth {
        outbox: row.try_get(0)?,
        due: row.try_get(1)?,
        later: row.try_get(2)?,
        oldest_due_age: Duration::try_from_secs_f64(row.try_get(3)?).unwrap_or_default(),
        active: row.try_get(4)?,
        paused: row.try_get(5)?,
        disabled: row.try_get(6)?,
        workers: row.try_get(7)?,
    })
}

/// A row as texts, for a table.
pub(crate) type Texts = Vec<String>;

fn texts(row: &Row) -> Result<Texts, tokio_postgres::Error> {
    (0..row.len())
        .map(|i| {
            let text: Option<String> = row.try_get(i)?;
            // What people and applications wrote must not steer the terminal.
            Ok(text.unwrap_or_default().replace(char::is_control, " "))
        })
        .collect()
}

async fn rows(client: &Client, sql: &str) -> Result<Vec<Texts>, InspectError> {
    let rows = client.query_typed(sql, &[]).await?;
    Ok(rows.iter().map(texts).collect::<Result<_, _>>()?)
}

/// Endpoints, those in trouble and with the longest backlog first, at most `limit`.
pub(crate) async fn endpoints(client: &Client, limit: u32) -> Result<Vec<Texts>, InspectError> {
    rows(
        client,
        &format!(
            "select endpoint_id::text, tenant, url, state,
                    case when until = 'infinity' then 'until resumed'
                         when until is not null then 'for ' || date_trunc('second', until - postrider_now.at)::text end,
                    failures::text, case when backlog >= 10000 then '10000+' else backlog::text end,
                    trim_scale(rate)::text || '/s, ' || burst || ', ' || concurrency,
                    round(100 * success_rate_24h, 1)::text || ' %', round(p50_ms_24h)::text, round(p95_ms_24h)::text, reason
               from postrider.endpoint_health, (select now() as at) postrider_now
              order by state = 'active', backlog desc, endpoint_id limit {limit}"
        ),
    )
    .await
}

/// Live workers.
pub(crate) async fn workers(client: &Client) -> Result<Vec<Texts>, InspectError> {
    rows(
        client,
        "select w.name, w.version, date_trunc('second', now() - w.registered_at)::text,
                round(extract(epoch from now() - w.seen_at))::text || ' s ago',
                (select count(*) from postrider.endpoint_state s where s.owner = w.id)::text
           from postrider.workers w order by w.registered_at",
    )
    .await
}

/// How the deliveries of the last 24 hours' events ended or stand, by status.
///
/// Not from the view `deliveries`: a range of ids does not reach its anti-joins, so that it reads and locks every day
/// there is. Here each mention of a partitioned table has the range, as a constant.
pub(crate) async fn by_status(client: &Client) -> Result<Vec<Texts>, InspectError> {
    let bounds = "select format('event_id >= %L and event_id < %L', postrider._uuid_floor(postrider.now() - interval '24 hours'),
                                postrider._uuid_floor(postrider.now() + interval '1 hour'))";
    let range = value(client, bounds).await?.unwrap_or_default();
    rows(
        client,
        &format!(
            "with ended as (select * from postrider.finished where {range}),
                  owed as (select * from postrider.pending where {range})
             select status, count(*)::text
               from (select 'pending' as status from owed
                     union all
                     select e.status from ended e
                      where not exists (select from owed o where o.event_id = e.event_id and o.endpoint_id = e.endpoint_id)
                        and not exists (select from ended l where l.event_id = e.event_id and l.endpoint_id = e.endpoint_id
                                                              and l.run > e.run)) latest
              group by status order by count(*) desc, status"
        ),
    )
    .await
}

/// One value as text; `None` when it is null or there is no row.
pub(crate) async fn value(client: &Client, sql: &str) -> Result<Option<String>, InspectError> {
    let row = client.query_typed_opt(sql, &[]).await?;
    Ok(match row {
        Some(row) => row.try_get(0)?,
        None => None,
    })
}

/// The product's roles that do not exist, by name.
pub async fn missing_roles(client: &Client) -> Result<Option<String>, InspectError> {
    value(client, questions::MISSING_ROLES).await
}

/// What `doctor` asks; each gives one text, or null where there is nothing to say.
pub(crate) mod questions {
    pub const VERSION: &str = "select current_setting('server_version')";
    pub const TOO_OLD: &str = "select current_setting('server_version') where current_setting('server_version_num')::integer < 140000";
    pub const NOT_UTF8: &str = "select current_setting('server_encoding') where current_setting('server_encoding') <> 'UTF8'";
    pub const MISSING_ROLES: &str = "select string_agg(r, ', ') from unnest(array['postrider_emitter', 'postrider_worker', 'postrider_operator', 'postrider_reader']) r
          where not exists (select from pg_catalog.pg_roles p where p.rolname = r)";
    pub const MISSING_GRANTS: &str = "select string_agg(r.rolname || ' on ' || p.proname, ', ')
          from (values ('postrider_emitter', 'emit_event'), ('postrider_worker', 'claim_endpoints'), ('postrider_worker', 'report_attempts'),
                       ('postrider_operator', 'create_endpoint'), ('postrider_reader', 'explain_delivery')) w (role, name)
          join pg_catalog.pg_roles r on r.rolname = w.role
          join pg_catalog.pg_proc p on p.proname = w.name and p.pronamespace = 'postrider'::regnamespace
         where not (has_schema_privilege(r.oid, 'postrider', 'usage') and has_function_privilege(r.oid, p.oid, 'execute'))";
    pub const PUBLIC_FUNCTIONS: &str = "select string_agg(p.proname, ', ') from pg_catalog.pg_proc p
          where p.pronamespace = 'postrider'::regnamespace
            and (p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0))";
    pub const TRIGGERS: &str = "select string_agg(w.name, ', ')
          from (values ('outbox', 'notify_workers'), ('endpoint_state', 'ladder'), ('endpoint_state', 'ladder_alert')) w (tab, name)
         where not exists (select from pg_catalog.pg_trigger t join pg_catalog.pg_class c on c.oid = t.tgrelid
                            where c.relnamespace = 'postrider'::regnamespace and c.relname = w.tab
                              and t.tgname = w.name and t.tgenabled in ('O', 'A'))";
    pub const LEAVES_AHEAD: &str = "select (max(to_date(right(c.relname, 8), 'YYYYMMDD')) - (postrider.now() at time zone 'UTC')::date)::text
          from pg_catalog.pg_class c where c.relnamespace = 'postrider'::regnamespace and c.relname ~ '^events_[0-9]{8}$'";
    pub const STRAYS: &str = "select nullif((select count(*) from postrider.events_default) + (select count(*) from postrider.finished_default)
                 + (select count(*) from postrider.attempts_default), 0)::text";
    pub const LEAVES: &str = "select count(*)::text from pg_catalog.pg_class c where c.relnamespace = 'postrider'::regnamespace and c.relname ~ '_[0-9]{8}$'";
    pub const LOCK_TABLE: &str = "select (current_setting('max_locks_per_transaction')::bigint
                 * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint))::text";
    pub const LONG_TRANSACTIONS: &str = "select string_agg(format('process %s (%s, open for %s)', pid, coalesce(nullif(application_name, ''), usename), date_trunc('second', now() - xact_start)), '; ')
          from pg_catalog.pg_stat_activity where xact_start < now() - interval '10 minutes' and backend_type = 'client backend'";
    pub const BLIND: &str = "select 'yes' where not pg_has_role('pg_read_all_stats', 'usage')";
    pub const PREPARED: &str =
        "select string_agg(format('%s (since %s)', gid, date_trunc('second', prepared)), '; ')
          from pg_catalog.pg_prepared_xacts where prepared < now() - interval '10 minutes'";
    pub const SLOTS: &str =
        "select string_agg(slot_name, ', ') from pg_catalog.pg_replication_slots where not active";
    pub const LIVE_WORKERS: &str = "select count(*)::text from postrider.workers where seen_at > postrider.now() - interval '1 minute'";
    pub const WORK_WAITS: &str = "select case when outbox + due > 0 then format('%s events in the outbox, %s deliveries due', outbox, due) end
          from postrider.queue_depth";
    pub const DEFERRED: &str = "select count(*)::text from postrider.deferred d
         where postrider._uuid_time(d.event_id) < postrider.now() - interval '1 minute' having count(*) > 0";
    pub const OUTBOX_AGE: &str = "select date_trunc('second', postrider.now() - postrider._uuid_time(min(event_id::text)::uuid))::text from postrider.outbox
          having postrider.now() - postrider._uuid_time(min(event_id::text)::uuid) > interval '30 seconds'";
    pub const OLDEST_DUE: &str = "select date_trunc('second', oldest_due_age)::text from postrider.queue_depth where oldest_due_age > interval '5 minutes'";
    pub const DISABLED: &str = "select string_agg(endpoint_id::text, ', ') from (select endpoint_id from postrider.endpoint_health where state = 'disabled' order by 1 limit 20) d";
    pub const ALERTS: &str =
        "select nullif(count(*), 0)::text from postrider.alerts where dismissed_at is null";
    pub const LAPSES: &str = "select string_agg(format('%s (%s)', endpoint_id, lapses), ', ') from (select endpoint_id, lapses from postrider.endpoint_state where lapses > 1 order by 2 desc limit 20) l";
    pub const SETTINGS_HTTP: &str =
        "select case when allow_http then 'yes' end from postrider.settings";
    pub const NOTIFY_OFF: &str =
        "select case when not notify then 'off' end from postrider.settings";
    pub const SYNCHRONOUS: &str = "select case when current_setting('synchronous_commit') in ('off', 'local') then current_setting('synchronous_commit') end";
    pub const CLOCK: &str =
        "select (extract(epoch from pg_catalog.clock_timestamp())::float8)::text";
}
