-- fetch_due: fetch_deliveries for endpoints of which the caller has nothing in hand, sent behind fan_out.
--
-- Locks: as fetch_deliveries. It is a transaction of its own since fan_out's locks last until all rows are with the client,
-- who may have stopped reading: a few bytes fit into the sockets' buffers, bodies do not.

create or replace function postrider.fetch_due(worker uuid, endpoint_ids bigint[], limits integer[], max_bytes bigint)
returns table (endpoint_id bigint, settings jsonb, event_id uuid, run integer, number integer,
               event_type text, body text, expires_in_ms bigint, overdue_ms bigint)
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_now constant timestamptz := postrider.now();
    v_due bigint[];
    v_limits integer[];
begin
    perform postrider._require_read_committed();
    select array_agg(w.id), array_agg(w.max) into v_due, v_limits
      from unnest(endpoint_ids, limits) w (id, max)
     where postrider._earliest_due(w.id) <= v_now;
    if v_due is not null then
        return query
            select f.* from postrider.fetch_deliveries(worker, v_due, v_limits, '{}', '{}', max_bytes) f;
    end if;
end
$$;
comment on function postrider.fetch_due(uuid, bigint[], integer[], bigint) is
    'As fetch_deliveries for endpoints of which the caller holds nothing, leaving out those of which nothing is due.';
