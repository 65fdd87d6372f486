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
    v_kept text;
    v_low text;
    v_from timestamptz;
    v_next timestamptz;
    v_began timestamptz;
    v_walked bigint;
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
    v_kept := nullif(current_setting('postrider.low_claim', true), '');
    v_low := case when v_kept is not null then postrider._low_key('claim') end;
    v_from := coalesce(v_low::timestamptz, '-infinity');
    v_began := clock_timestamp();
    v_walked := postrider._walked('endpoint_state_claim');
    return query
        update postrider.endpoint_state s
           set owner = claim_endpoints.worker
          from (select x.endpoint_id from postrider.endpoint_state x
                 where x.owner is null and x.next_claim_at <= v_now and x.next_claim_at >= v_from
                 order by x.next_claim_at limit claim_endpoints.max_endpoints
                   for no key update skip locked) d
         where s.endpoint_id = d.endpoint_id
        returning s.endpoint_id,
                  coalesce(postrider._ms_until(s.pace_until, v_now), 0),
                  null::bigint;
    select x.next_claim_at into v_next
      from postrider.endpoint_state x
     where x.owner is null and x.next_claim_at is not null and x.next_claim_at >= v_from
     order by x.next_claim_at limit 1;
    v_walked := postrider._walked('endpoint_state_claim') - v_walked;
    if v_kept is not null or v_walked > 1000 then
        -- A second less: a mark becomes visible later than it was made.
        perform postrider._keep_low_key('claim', v_low, to_char(least(v_next, v_now) - interval '1 s', 'YYYY-MM-DD HH24:MI:SS.USOF'),
                                        v_walked, v_began);
    end if;
    if v_next is not null then
        return query select null::bigint, null::bigint, postrider._ms_until(v_next, v_now);
    end if;
end
$$;
comment on function postrider.claim_endpoints(uuid, integer, boolean) is
    'Takes due, unowned endpoints, longest due first, with how far ahead of now their pace stands; include_owned adds those the worker owns already, for one that may have missed the answer to a claim; a last row without an endpoint says when the next one is due. PR021: the caller''s lease is gone.';
