-- release_endpoints: gives endpoints up, with their pace.
--
-- Locks: endpoint_state, ids ascending, SKIP LOCKED, in one statement; what is still owed is looked for in the next, or a
-- delivery fanned out meanwhile would be lost to sight.

create or replace function postrider.release_endpoints(worker uuid, endpoint_ids bigint[], pace_ahead_ms bigint[])
returns setof bigint
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
    v_mine bigint[];
begin
    perform postrider._require_read_committed();
    -- The worker forgets what it released: a crash must not bring it back under a worker that lives on.
    perform postrider._require_durable_commit();
    perform postrider._plan_for(cardinality(release_endpoints.endpoint_ids));
    v_mine := array(select s.endpoint_id from postrider.endpoint_state s
                     where s.endpoint_id = any (release_endpoints.endpoint_ids) and s.owner = release_endpoints.worker
                     order by s.endpoint_id for no key update skip locked);
    v_now := postrider.now();
    -- Before the owner goes, or each endpoint with nothing owed would pass through the index of those to be claimed.
    perform postrider._mark(v_mine);
    update postrider.endpoint_state s
       set owner = null,
           pace_until = case when r.ahead_ms > 0 then v_now + make_interval(secs => r.ahead_ms / 1000.0) end
      from unnest(release_endpoints.endpoint_ids, release_endpoints.pace_ahead_ms) r (endpoint_id, ahead_ms)
     where s.endpoint_id = r.endpoint_id and s.endpoint_id = any (v_mine);
    if exists (select from postrider.endpoint_state s
                where s.endpoint_id = any (v_mine) and s.owner is null and s.next_claim_at <= v_now) then
        perform postrider._wake(null);
    end if;
    return query
        select s.endpoint_id from postrider.endpoint_state s
         where s.endpoint_id = any (release_endpoints.endpoint_ids) and s.owner = release_endpoints.worker;
end
$$;
comment on function postrider.release_endpoints(uuid, bigint[], bigint[]) is
    'Gives up endpoints the worker owns, with how far ahead of now their pace stands, in milliseconds. Returns those it still owns, since a transaction holds them: release them again.';
