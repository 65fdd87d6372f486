//! Who holds the locks that an installation waits for.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::LOCK_KEY;

/// A session or prepared transaction that holds locks on Postrider's tables.
#[derive(Clone, Debug)]
pub struct Blocker {
    /// Its process id; none for a prepared transaction.
    pub pid: Option<i32>,
    /// Application, state, age and last statement, or the name of the prepared transaction.
    pub what: String,
}

impl Blocker {
    pub(super) fn describe(blockers: &[Self]) -> String {
        let Some(first) = blockers.first() else {
            return "nobody holds a lock now, so trying again may help".to_owned();
        };
        let names: Vec<&str> = blockers.iter().map(|b| b.what.as_str()).collect();
        let way_out = match first.pid {
            Some(pid) => format!("end the first with: select pg_terminate_backend({pid})"),
            None => "end the first with: commit prepared, or rollback prepared".to_owned(),
        };
        format!("locks are held by {}; {way_out}", names.join(", and by "))
    }
}

/// The holders, oldest transaction first; empty when they cannot be read.
pub(super) async fn find(client: &Client) -> Vec<Blocker> {
    // A prepared transaction has no process; the lock on its own id leads to its name.
    let sql = "
        select distinct on (a.xact_start, a.pid, p.gid)
               a.pid,
               case when a.pid is not null then
                   format('pid %s (%s, user %s, %s, transaction open for %s s, last statement: %s)',
                          a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'), a.usename,
                          a.state, round(extract(epoch from clock_timestamp() - a.xact_start)),
                          left(regexp_replace(a.query, '\\s+', ' ', 'g'), 100))
               else format('the prepared transaction %L', p.gid) end
        from pg_catalog.pg_locks l
        left join pg_catalog.pg_stat_activity a on a.pid = l.pid
        left join pg_catalog.pg_locks own
               on l.pid is null and own.pid is null and own.locktype = 'transactionid'
              and own.virtualtransaction = l.virtualtransaction
        left join pg_catalog.pg_prepared_xacts p on p.transaction = own.transactionid
        where l.granted
          and l.pid is distinct from pg_catalog.pg_backend_pid()
          and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
          and (l.relation in (select c.oid from pg_catalog.pg_class c
                              join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                              where n.nspname = 'postrider')
               or l.locktype = 'advisory' and l.objsubid = 1
                  and l.classid::bigint = $1 and l.objid::bigint = $2)
          and (a.pid is not null or p.gid is not null)
        order by a.xact_start, a.pid, p.gid
        limit 3";
    let (high, low) = (LOCK_KEY >> 32, LOCK_KEY & 0xffff_ffff);
    let rows = client
        .query_typed(sql, &[(&high, Type::INT8), (&low, Type::INT8)])
        .await;
    if let Err(error) = &rows {
        tracing::debug!(error = %crate::connect::explain(error), "lock holders cannot be read");
    }
    let rows = rows.unwrap_or_default();
    rows.iter()
        .filter_map(|r| {
            Some(Blocker {
                pid: r.try_get(0).ok()?,
                what: r.try_get(1).ok()?,
            })
        })
        .collect()
}
