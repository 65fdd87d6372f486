-- The head of outbox, without the rows that died before it and that an old snapshot, anywhere in the cluster, keeps.
-- Locks: none.
--
-- Ids are in the order of their emit; they become visible in the order of their commit. So a scan that begins where the
-- last one ended misses what was emitted before and committed after. Keys are therefore hints, each for a time: `near`, 20 ms
-- before the oldest event of the last scan, within a second; `far`, a second before it, within five; then the scan is from
-- the beginning. A key holds for twenty times what the scan took that it saves. Where nothing is left above `near`, `far`
-- is looked at at once.
--
-- They live in a setting of the session, postrider.low_outbox: a row written so often would fill with dead versions itself.

create or replace function postrider._outbox_from(low uuid, max_events integer) returns uuid[]
language plpgsql stable
-- In the order of the index, or not at all: without statistics, reading all of outbox and sorting looks cheaper.
-- Bitmap scans would never mark dead entries as such, either.
set search_path to pg_catalog, pg_temp
set plan_cache_mode to force_generic_plan
set enable_seqscan to off
set enable_bitmapscan to off
set enable_sort to off
as $$
begin
    return array(select o.event_id from postrider.outbox o
                  where o.after_endpoint is null
                    and o.event_id >= coalesce(_outbox_from.low, '00000000-0000-0000-0000-000000000000')
                  order by o.event_id limit _outbox_from.max_events);
end
$$;
comment on function postrider._outbox_from(uuid, integer) is
    'The oldest events not fanned out, large ones under way aside, from a key on.';

create or replace function postrider._outbox_head(max_events integer, out event_ids uuid[], out passed_over boolean)
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_kept constant text[] := string_to_array(nullif(current_setting('postrider.low_outbox', true), ''), '|');
    v_began constant timestamptz := clock_timestamp();
    v_began_s constant numeric := extract(epoch from v_began);
    v_far_until numeric := v_kept[1]::numeric;  -- seconds since 1970, as the two below
    v_far uuid := v_kept[2];
    v_near_until numeric := v_kept[3]::numeric;
    v_near uuid := v_kept[4];
    v_now timestamptz;
    v_oldest timestamptz;
    v_walked bigint;
    v_took_s numeric;
begin
    if v_kept is not null then
        v_now := postrider.now();
        -- The upper bounds, and of the keys: a clock may have been set back.
        if coalesce(v_far_until - v_began_s not between 0 and 5 or v_far > postrider._uuid_floor(v_now), true) then
            v_far := null;
            v_near := null;
        elsif coalesce(v_near_until - v_began_s not between 0 and 1 or v_near > postrider._uuid_floor(v_now), true) then
            v_near := null;
        end if;
    end if;
    if v_near is not null then
        event_ids := postrider._outbox_from(v_near, _outbox_head.max_events);
        passed_over := cardinality(event_ids) > 0;
    end if;
    if passed_over is not true then
        passed_over := false;
        v_walked := postrider._walked('outbox_pkey');
        event_ids := postrider._outbox_from(v_far, _outbox_head.max_events);
        v_walked := postrider._walked('outbox_pkey') - v_walked - cardinality(event_ids);
        if v_kept is null and v_walked <= 1000 then
            return;
        end if;
        v_took_s := extract(epoch from clock_timestamp()) - v_began_s;
        if v_far is null then
            if v_walked <= 1000 then
                perform set_config('postrider.low_outbox', '', false);
                return;
            end if;
            v_far_until := v_began_s + least(greatest(v_took_s * 20, 1), 5);
        end if;
        v_near_until := v_began_s + least(v_took_s * 20, 1);
        v_now := coalesce(v_now, postrider.now());
        v_oldest := least(postrider._uuid_time(event_ids[1]), v_now);
        v_far := postrider._uuid_floor(v_oldest - interval '1 s');
    else
        v_oldest := least(postrider._uuid_time(event_ids[1]), v_now);
    end if;
    v_near := postrider._uuid_floor(v_oldest - interval '20 ms');
    perform set_config('postrider.low_outbox', concat_ws('|', v_far_until, v_far, v_near_until, v_near), false);
end
$$;
comment on function postrider._outbox_head(integer) is
    'The oldest events not fanned out, large ones under way aside; passed_over: older ones may be there, since the scan began at a near key. Call again until it finds nothing.';
