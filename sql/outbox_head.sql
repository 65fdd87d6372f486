-- The head of outbox, without the rows that died before it and that an old snapshot, anywhere in the cluster, keeps.
-- Locks: none.
--
-- Ids are in the order of their emit; they become visible in the order of their commit. So a scan that begins where the
-- last one ended misses what was emitted before and committed after. Scans therefore begin at one of two keys: `near`,
-- 20 ms before the oldest event of the last scan, for twenty times what a scan from `far` takes, a second at most; or
-- `far`, a second before that event. What lies below far is swept, from far down, in windows of some thousand entries:
-- in a twentieth of the time, from the beginning again once the end is reached and a second has passed. A sweep that met
-- few dead entries ends the keys.
--
-- They live in a setting of the session, postrider.outbox_keys: a row written so often would fill with dead versions itself.
-- So the worker's pool gives out the session used last. Sessions outlive an upgrade: another form needs another name.

create or replace function postrider._outbox_between(low uuid, below uuid, max_events integer) returns uuid[]
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
                    and o.event_id >= coalesce(_outbox_between.low, '00000000-0000-0000-0000-000000000000')
                    and o.event_id < coalesce(_outbox_between.below, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                  order by o.event_id limit _outbox_between.max_events);
end
$$;
comment on function postrider._outbox_between(uuid, uuid, integer) is
    'The oldest events not fanned out, large ones under way aside, from a key on and below another; null: no bound.';

create or replace function postrider._outbox_head(max_events integer) returns uuid[]
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_kept text[] := string_to_array(nullif(current_setting('postrider.outbox_keys', true), ''), '|');
    v_began_s constant numeric := extract(epoch from clock_timestamp());  -- since 1970, as all that end so
    v_far uuid := v_kept[1];
    v_near uuid := v_kept[2];
    v_near_until_s numeric := v_kept[3]::numeric;
    v_sweep text[] := v_kept[4:9];
    v_events uuid[];
    v_now timestamptz;
    v_oldest timestamptz;
    v_walked bigint;
    v_took_s numeric;
begin
    if v_kept is not null then
        v_now := postrider.now();
        -- A clock may have been set back.
        if v_far > postrider._uuid_floor(v_now) then
            v_kept := null;
            v_far := null;
            v_sweep := null;
        end if;
        if v_far is null or v_near_until_s - v_began_s not between 0 and 1 or v_near > postrider._uuid_floor(v_now) then
            v_near := null;
        end if;
    end if;
    if v_near is not null then
        v_events := postrider._outbox_between(v_near, null, _outbox_head.max_events);
        v_oldest := least(postrider._uuid_time(v_events[1]), v_now);
    else
        v_walked := postrider._walked('outbox_pkey');
        v_events := postrider._outbox_between(v_far, null, _outbox_head.max_events);
        v_walked := postrider._walked('outbox_pkey') - v_walked - cardinality(v_events);
        if v_far is null and v_walked <= 1000 then
            perform set_config('postrider.outbox_keys', '', false);
            return v_events;
        end if;
        v_took_s := extract(epoch from clock_timestamp()) - v_began_s;
        v_near_until_s := v_began_s + least(v_took_s * 21, 1);
        v_oldest := least(postrider._uuid_time(v_events[1]), coalesce(v_now, postrider.now()));
        v_far := postrider._uuid_floor(v_oldest - interval '1 s');
    end if;
    v_near := postrider._uuid_floor(v_oldest - interval '20 ms');
    select s.events || v_events, s.sweep into v_events, v_sweep
      from postrider._sweep_outbox(v_far, v_sweep, _outbox_head.max_events) s;
    perform set_config('postrider.outbox_keys', case when v_sweep is null then ''
        else concat_ws('|', v_far, v_near, v_near_until_s, array_to_string(v_sweep, '|')) end, false);
    return v_events[1:_outbox_head.max_events];
end
$$;
comment on function postrider._outbox_head(integer) is
    'The oldest events not fanned out, large ones under way aside. Behind an old snapshot, what was committed late is found a little later.';
