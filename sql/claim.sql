-- claim_endpoints: takes endpoints that are due and unowned. No delivery row is written; owning the endpoint
-- is the lease on all of them.
--
-- Locks, where one is due: the caller's workers row FOR KEY SHARE (a worker whose lease was ended must not own
-- anything under its dead id), then endpoint_state FOR NO KEY UPDATE SKIP LOCKED, so that it waits for nobody. Where none
-- is, it only reads: for a row's lock its COMMIT would wait for the disk, and hold up those of applications.
--
-- Each endpoint that was claimed leaves a dead entry in the index of marks, and behind an old snapshot all of them stay.
-- So a scan that walked many leaves a hint to the session (postrider.low_claim) where the next may begin. A mark may
-- lie far in the past when it appears (an endpoint given up with old deliveries), so a hint holds for twenty times what
-- the scan from the beginning takes, five seconds at most.

create or replace function postrider._earliest_mark(low timestamptz) returns timestamptz
language plpgsql stable
set search_path to pg_catalog, pg_temp
as $$
begin
    return (select x.next_claim_at from postrider.endpoint_state x
             where x.owner is null and x.next_claim_at >= _earliest_mark.low
             order by x.next_claim_at limit 1);
end
$$;
comment on function postrider._earliest_mark(timestamptz) is
    'When the first endpoint that nobody owns is due, not before a time; null: none has anything owed.';

create or replace function postrider.claim_endpoints(worker uuid, max_endpoints integer, include_owned boolean default false)
returns table (endpoint_id bigint, pace_ahead_ms bigint, next_claim_in_ms bigint)
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
    v_next timestamptz;
    v_due boolean;
    v_kept constant text[] := string_to_array(nullif(current_setting('postrider.low_claim', true), ''), '|');
    v_low timestamptz := '-infinity';
    v_until numeric;  -- seconds since 1970
    v_began_s constant numeric := extract(epoch from clock_timestamp());
    v_walked bigint;
begin
    perform postrider._require_read_committed();
    perform postrider._require_durable_commit();
    perform postrider._plan_for(0);
    v_now := postrider.now();
    -- The bounds: a clock may have been set back.
    if v_kept[1]::numeric - v_began_s between 0 and 5 and to_timestamp(v_kept[2]::float8) <= v_now then
        v_until := v_kept[1]::numeric;
        v_low := to_timestamp(v_kept[2]::float8);
    end if;
    v_walked := postrider._walked('endpoint_state_claim');
    v_next := postrider._earliest_mark(v_low);
    v_due := coalesce(v_next <= v_now, false);
    if v_due then
        perform from postrider.workers w where w.id = claim_endpoints.worker for key share;
    else
        perform from postrider.workers w where w.id = claim_endpoints.worker;
    end if;
    if not found then
        perform postrider._fail('PR021', format('worker %s is not registered', claim_endpoints.worker),
            'Its lease has lapsed; register anew.');
    end if;
    if claim_endpoints.include_owned then
        -- What an earlier claim took whose answer was lost. Nobody knows where its pace stands: as far ahead as
        -- can be, which the worker cuts to an empty bucket.
        return query
            select s.endpoint_id, 31536000000::bigint, null::bigint
              from postrider.endpoint_state s where s.owner = claim_endpoints.worker;
    end if;
    if v_due then
        v_now := postrider.now();
        return query
            update postrider.endpoint_state s
               set owner = claim_endpoints.worker
              -- By its place, which is locked: by its id, all its dead versions would be walked.
              from (select x.ctid as place from postrider.endpoint_state x
                     where x.owner is null and x.next_claim_at between v_low and v_now
                     order by x.next_claim_at limit claim_endpoints.max_endpoints
                       for no key update skip locked) d
             where s.ctid = d.place
            returning s.endpoint_id,
                      coalesce(postrider._ms_until(s.pace_until, v_now), 0),
                      null::bigint;
        v_next := postrider._earliest_mark(v_low);
    end if;
    v_walked := postrider._walked('endpoint_state_claim') - v_walked;
    if v_until is null and v_walked > 2000 then
        v_until := extract(epoch from clock_timestamp());
        v_until := v_until + least(greatest((v_until - v_began_s) * 20, 1), 5);
    end if;
    if v_until is not null then
        -- A second less: of two marks, the earlier may become visible later.
        perform set_config('postrider.low_claim', concat_ws('|', v_until, extract(epoch from least(v_next, v_now) - interval '1 s')), false);
    end if;
    if v_next is not null then
        return query select null::bigint, null::bigint, postrider._ms_until(v_next, v_now);
    end if;
end
$$;
comment on function postrider.claim_endpoints(uuid, integer, boolean) is
    'Takes due, unowned endpoints, longest due first, with how far ahead of now their pace stands; include_owned adds those the worker owns already, for one that may have missed the answer to a claim; a last row without an endpoint says when the next one is due. PR021: the caller''s lease is gone.';
