-- Locking many endpoints without being held up by one.
--
-- The engine locks endpoint_state rows of many endpoints in one call. A transaction of an operator or an
-- application that changed an endpoint and stays open would stop all of them, so the engine waits for no row:
-- it goes on without those that somebody holds, and its caller comes back for them. Not waiting also keeps the
-- one lock order: whoever holds some rows and waits for others would break it.

create or replace function postrider._lock_endpoints(endpoint_ids bigint[]) returns bigint[]
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_locked bigint[];
begin
    v_locked := array(select s.endpoint_id from postrider.endpoint_state s
                       where s.endpoint_id = any (endpoint_ids)
                       order by s.endpoint_id for no key update skip locked);
    return array(select s.endpoint_id from postrider.endpoint_state s
                  where s.endpoint_id = any (endpoint_ids) and s.endpoint_id <> all (v_locked));
end
$$;
comment on function postrider._lock_endpoints(bigint[]) is
    'Locks the state of these endpoints, but for those that somebody else holds, and returns the latter.';
