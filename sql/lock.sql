-- Locking many endpoints without being held up by one.
--
-- The engine locks endpoint_state rows of many endpoints in one call. Another call of the engine holds a row for
-- milliseconds, and is waited for: 50 ms at most, ids ascending. A transaction of an operator or an application
-- that changed an endpoint and stays open would stop all of them, so a call that met one begins anew and goes on
-- without the rows that somebody holds; its caller comes back for them.

create or replace function postrider._lock_endpoints(endpoint_ids bigint[], known_held bigint[], patient boolean)
returns bigint[]
language plpgsql
set search_path to pg_catalog, pg_temp
set lock_timeout to '50ms'
set plan_cache_mode to force_generic_plan
set enable_seqscan to off
as $$
declare
    v_locked bigint[];
begin
    v_locked := array(select s.endpoint_id from postrider.endpoint_state s
                       where s.endpoint_id = any (endpoint_ids)
                         and (not patient or s.endpoint_id = any (known_held))
                       order by s.endpoint_id for no key update skip locked);
    if patient then
        perform from postrider.endpoint_state s
          where s.endpoint_id = any (endpoint_ids) and s.endpoint_id <> all (known_held)
          order by s.endpoint_id for no key update;
        return array(select h.id from unnest(known_held) h (id) where h.id <> all (v_locked));
    end if;
    return array(select s.endpoint_id from postrider.endpoint_state s
                  where s.endpoint_id = any (endpoint_ids) and s.endpoint_id <> all (v_locked));
end
$$;
comment on function postrider._lock_endpoints(bigint[], bigint[], boolean) is
    'Locks the state of these endpoints. Patient, it waits for all but those known to be held, 50 ms each at most (55P03); else it waits for none. Returns those that it did not lock.';
