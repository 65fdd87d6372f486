-- claim_endpoints: takes endpoints that are due and unowned. No delivery row is written; owning the endpoint
-- is the lease on all of them.
--
-- Locks: the caller's workers row FOR KEY SHARE (a worker whose lease was ended must not own anything under
-- its dead id), then endpoint_state FOR NO KEY UPDATE SKIP LOCKED, so that it waits for nobody.

create or replace function postrider.claim_endpoints(worker uuid, max_endpoints integer, include_owned boolean default false)
returns table (endpoint_id bigint, pace_ahead_ms bigint, next_claim_in_ms bigint)
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
    v_next timestamptz;
begin
    perform postrider._require_read_committed();
    perform postrider._require_durable_commit();
    perform from postrider.workers w where w.id = claim_endpoints.worker for key share;
    if not found then
        perform postrider._fail('PR021', format('worker %s is not registered', claim_endpoints.worker),
            'Its lease has lapsed; register anew.');
    end if;
    v_now := postrider.now();
    perform postrider._plan_for(0);
    if claim_endpoints.include_owned then
        -- What an earlier claim took whose answer was lost. Nobody knows where its pace stands: as far ahead as
        -- can be, which the worker cuts to an empty bucket.
        return query
            select s.endpoint_id, 31536000000::bigint, null::bigint
              from postrider.endpoint_state s where s.owner = claim_endpoints.worker;
    end if;
    return query
        update postrider.endpoint_state s
           set owner = claim_endpoints.worker
          from (select x.endpoint_id from postrider.endpoint_state x
                 where x.owner is null and x.next_claim_at <= v_now
                 order by x.next_claim_at limit claim_endpoints.max_endpoints
                   for no key update skip locked) d
         where s.endpoint_id = d.endpoint_id
        returning s.endpoint_id,
                  coalesce(postrider._ms_until(s.pace_until, v_now), 0),
                  null::bigint;
    select x.next_claim_at into v_next
      from postrider.endpoint_state x
     where x.owner is null and x.next_claim_at is not null
     order by x.next_claim_at limit 1;
    if v_next is not null then
        return query select null::bigint, null::bigint, postrider._ms_until(v_next, v_now);
    end if;
end
$$;
comment on function postrider.claim_endpoints(uuid, integer, boolean) is
    'Takes due, unowned endpoints, longest due first, with how far ahead of now their pace stands; include_owned adds those the worker owns already, for one that may have missed the answer to a claim; a last row without an endpoint says when the next one is due. PR021: the caller''s lease is gone.';
