-- The head of outbox, without the rows that died before it and that an old snapshot, anywhere in the cluster, keeps.
-- Locks: none.
--
-- Ids are in the order of their emit; they become visible in the order of their commit. So a scan that begins where the
-- last one ended misses what was emitted before and committed after. Keys are therefore hints, each for a time: `near`, 20 ms
-- before the oldest event of the last scan, for a second at most; `far`, a second before it, for five seconds or five
-- times as long as a scan without it takes, if that is longer; then the scan is from the beginning. Within these bounds a key holds for
-- twenty times what the scan took that it saves, from its end.
--
-- They live in a setting of the session, postrider.low_outbox: a row written so often would fill with dead versions itself.
-- So the worker's pool gives out the session used last.

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

create or replace function postrider._outbox_head(max_events integer) returns uuid[]
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_kept constant text[] := string_to_array(nullif(current_setting('postrider.low_outbox', true), ''), '|');
    v_began_s constant numeric := extract(epoch from clock_timestamp());
    v_far_until numeric := v_kept[1]::numeric;  -- seconds since 1970, as the others
    v_far uuid := v_kept[2];
    v_near_until numeric := v_kept[3]::numeric;
    v_near uuid := v_kept[4];
    v_far_for numeric := v_kept[5]::numeric;    -- how long far was given
    v_events uuid[];
    v_now timestamptz;
    v_oldest timestamptz;
    v_walked bigint;
    v_ended_s numeric;
begin
    if v_kept is not null then
        v_now := postrider.now();
        -- The upper bounds, and of the keys: a clock may have been set back.
        if coalesce(v_far_until - v_began_s not between 0 and v_far_for or v_far > postrider._uuid_floor(v_now), true) then
            v_far := null;
        end if;
        if v_far is null or v_near_until - v_began_s not between 0 and 1 or v_near > postrider._uuid_floor(v_now) then
            v_near := null;
        end if;
    end if;
    if v_near is not null then
        v_events := postrider._outbox_from(v_near, _outbox_head.max_events);
        v_oldest := least(postrider._uuid_time(v_events[1]), v_now);
    else
        v_walked := postrider._walked('outbox_pkey');
        v_events := postrider._outbox_from(v_far, _outbox_head.max_events);
        v_walked := postrider._walked('outbox_pkey') - v_walked - cardinality(v_events);
        if v_far is null and v_walked <= 1000 then
            if v_kept is not null then
                perform set_config('postrider.low_outbox', '', false);
            end if;
            return v_events;
        end if;
        v_ended_s := extract(epoch from clock_timestamp());
        if v_far is null then
            v_far_for := least(greatest((v_ended_s - v_began_s) * 20, 1), greatest((v_ended_s - v_began_s) * 5, 5));
            v_far_until := v_ended_s + v_far_for;
        end if;
        v_near_until := v_ended_s + least((v_ended_s - v_began_s) * 20, 1);
        v_oldest := least(postrider._uuid_time(v_events[1]), coalesce(v_now, postrider.now()));
        v_far := postrider._uuid_floor(v_oldest - interval '1 s');
    end if;
    v_near := postrider._uuid_floor(v_oldest - interval '20 ms');
    perform set_config('postrider.low_outbox', concat_ws('|', v_far_until, v_far, v_near_until, v_near, v_far_for), false);
    return v_events;
end
$$;
comment on function postrider._outbox_head(integer) is
    'The oldest events not fanned out, large ones under way aside. Behind an old snapshot, what was committed late is found a little later.';
