-- Time to live: what is past it ends as expired, by whoever meets it (fetch_deliveries, maintain).
--
-- Locks: pending rows, (event, endpoint) ascending, SKIP LOCKED; no endpoint's lock is needed or taken after.

create or replace function postrider._expire(event_ids uuid[], endpoint_ids bigint[], at timestamptz) returns integer
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_count integer;
begin
    with locked as (
        -- Row by row: _report_attempts says why.
        select p.place
          from (select k.event_id, k.endpoint_id
                  from unnest(_expire.event_ids, _expire.endpoint_ids) k (event_id, endpoint_id)
                 order by k.event_id, k.endpoint_id offset 0) k
         cross join lateral (select x.ctid as place from postrider.pending x
                              where x.event_id = k.event_id and x.endpoint_id = k.endpoint_id
                                and x.expires_at <= _expire.at offset 0 for update skip locked) p
    ), gone as (
        delete from postrider.pending p
         where p.ctid = any (array(select l.place from locked l))
        returning p.event_id, p.endpoint_id, p.run, p.attempts, p.failures, p.last_http_status, p.last_error, p.expires_at
    )
    insert into postrider.finished (event_id, endpoint_id, run, status, reason, attempts, failures,
                                    last_http_status, last_error, finished_at)
    select g.event_id, g.endpoint_id, g.run, 'expired', format('its time to live ended at %s', g.expires_at),
           g.attempts, g.failures, g.last_http_status, g.last_error, _expire.at
      from gone g;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
comment on function postrider._expire(uuid[], bigint[], timestamptz) is
    'Ends those of these deliveries that are past their time to live.';
