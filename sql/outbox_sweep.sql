-- The sweep of outbox below the far key of outbox_head.sql, a step a call. Locks: none.
--
-- Its state: below which key it goes on (empty: it rests), how many seconds of ids a window spans, when the last step and
-- this sweep began, how many dead entries it has met.

create or replace function postrider._sweep_outbox(far uuid, inout sweep text[], max_events integer, out events uuid[])
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_began_s constant numeric := extract(epoch from clock_timestamp());  -- since 1970, as all that end so
    v_below uuid := nullif(_sweep_outbox.sweep[1], '');
    v_span interval := _sweep_outbox.sweep[2]::numeric * interval '1 s';
    v_last_s constant numeric := _sweep_outbox.sweep[3]::numeric;
    v_start_s numeric := _sweep_outbox.sweep[4]::numeric;
    v_met bigint := _sweep_outbox.sweep[5]::bigint;
    v_low uuid;
    v_walked bigint;
begin
    events := '{}';
    if _sweep_outbox.sweep is null then
        -- All of outbox was scanned just now.
        sweep := array['', '0', v_began_s::text, v_began_s::text, '0'];
        return;
    end if;
    -- The upper bounds, here and below: a clock may have been set back.
    if v_began_s - v_last_s between 0 and 0.02 or v_below is null and v_began_s - v_start_s between 0 and 1 then
        return;
    end if;
    if v_below is null then
        v_below := _sweep_outbox.far;
        v_span := interval '1 s';
        v_start_s := v_began_s;
        v_met := 0;
    end if;
    loop
        v_low := postrider._uuid_floor(postrider._uuid_time(v_below) - v_span);
        v_walked := postrider._walked('outbox_pkey');
        events := postrider._outbox_between(v_low, v_below, _sweep_outbox.max_events);
        -- A window that holds events is scanned once more: the caller may take some of them only.
        exit when cardinality(events) > 0;
        v_walked := postrider._walked('outbox_pkey') - v_walked;
        v_met := v_met + v_walked;
        v_below := case when v_low > '00000000-0000-0000-0000-000000000000' then v_low end;
        if v_walked < 1000 then
            v_span := v_span * 2;
        elsif v_walked > 4000 then
            v_span := greatest(v_span / 2, interval '1 ms');
        end if;
        exit when v_below is null
            or extract(epoch from clock_timestamp()) - v_began_s > least((v_began_s - v_last_s) / 20, 0.1);
    end loop;
    sweep := case when v_below is not null or v_met > 1000
        then array[coalesce(v_below::text, ''), extract(epoch from v_span)::text, v_began_s::text, v_start_s::text, v_met::text] end;
end
$$;
comment on function postrider._sweep_outbox(uuid, text[], integer) is
    'Sweeps the part of outbox below a key; sweep: its state, null before (what there is was scanned just now), and after an end at which few dead entries were met; events: what was found.';
