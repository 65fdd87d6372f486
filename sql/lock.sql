-- Locking many endpoints without being held up by one.
--
-- The engine locks endpoint_state rows of many endpoints in one call. A transaction of an operator or an
-- application that changed an endpoint and stays open would stop all of them, so the engine waits for a row
-- only as long as another engine call may hold it, and then goes on without it.

create or replace function postrider._lock_endpoints(endpoint_ids bigint[], known_held bigint[] default '{}')
returns bigint[]
language plpgsql
set search_path to pg_catalog, pg_temp
set lock_timeout to '50ms'
as $$
declare
    v_locked bigint[];
    v_held bigint[];
begin
    v_locked := array(select s.endpoint_id from postrider.endpoint_state s
                       where s.endpoint_id = any (endpoint_ids)
                       order by s.endpoint_id for no key update skip locked);
    v_held := array(select s.endpoint_id from postrider.endpoint_state s
                     where s.endpoint_id = any (endpoint_ids) and s.endpoint_id <> all (v_locked));
    if v_held <@ known_held then
        return v_held;
    end if;
    begin
        perform from postrider.endpoint_state s
          where s.endpoint_id = any (v_held) and s.endpoint_id <> all (known_held)
          order by s.endpoint_id for no key update;
    exception when lock_not_available or deadlock_detected then
        return v_held;
    end;
    return array(select h.id from unnest(v_held) h (id) where h.id = any (known_held));
end
$$;
comment on function postrider._lock_endpoints(bigint[], bigint[]) is
    'Locks the state of these endpoints, ids ascending. Returns those that somebody holds for longer than 50 ms, or, without any wait, of those known to be held.';
