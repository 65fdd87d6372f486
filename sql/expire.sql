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
        select p.event_id, p.endpoint_id
          from unnest(_expire.event_ids, _expire.endpoint_ids) k (event_id, endpoint_id)
          join postrider.pending p on p.event_id = k.event_id and p.endpoint_id = k.endpoint_id
         where p.expires_at <= _expire.at
         order by p.event_id, p.endpoint_id for update of p skip locked
    ), gone as (
        delete from postrider.pending p using locked l
         where p.event_id = l.event_id and p.endpoint_id = l.endpoint_id
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
