-- Subscribers of an event type: one ordered index read per pattern, so that a step of fan_out costs what it
-- takes and not what is subscribed. Locks: none.

create or replace function postrider._subscribers(tenant text, event_type text, after_endpoint bigint, max integer)
returns setof bigint
language plpgsql stable
set search_path to pg_catalog, pg_temp
set plan_cache_mode to force_generic_plan
set enable_seqscan to off
set enable_hashjoin to off
set enable_mergejoin to off
as $$
begin
    return query
        select distinct s.endpoint_id
          from unnest(postrider._patterns(_subscribers.event_type)) t (pattern)
         cross join lateral (select x.endpoint_id from postrider.subscriptions x
                              where x.tenant = _subscribers.tenant and x.pattern = t.pattern
                                and x.endpoint_id > _subscribers.after_endpoint
                              order by x.endpoint_id limit _subscribers.max) s
         order by s.endpoint_id limit _subscribers.max;
end
$$;
comment on function postrider._subscribers(text, text, bigint, integer) is
    'The endpoints subscribed to an event type, ids ascending after the given one, at most so many.';
