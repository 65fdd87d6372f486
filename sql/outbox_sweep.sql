-- The sweep of outbox below the far key of outbox_head.sql, a step a call. Locks: none.
--
-- Its state: below which key it goes on (empty: it rests), how many seconds of ids a window spans, when the last step ended
-- (later, for one that took more than its time), when this sweep began, how many dead entries it has met, and from which
-- key on the window in which it found events is scanned again.

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
    v_from uuid := nullif(_sweep_outbox.sweep[6], '');
    v_budget_s constant numeric := greatest(least((v_began_s - v_last_s) / 20, 0.1), 0.001);
    v_low uuid;
    v_now_s numeric;
    v_walked bigint;
begin
    events := '{}';
    if _sweep_outbox.sweep is null then
        -- All of outbox was scanned just now.
        sweep := array['', '0', v_began_s::text, v_began_s::text, '0', ''];
        return;
    end if;
    -- The outer bounds, here and below: a clock may have been set back.
    if v_began_s - v_last_s between -60 and 0.02 or v_below is null and v_began_s - v_start_s between 0 and 1 then
        return;
    end if;
    if v_below is null then
        v_below := _sweep_outbox.far;
        v_span := interval '1 s';
        v_start_s := v_began_s;
        v_met := 0;
        v_from := null;
    end if;
    loop
        v_low := coalesce(v_from, postrider._uuid_floor(postrider._uuid_time(v_below) - v_span));
        v_walked := postrider._walked('outbox_pkey');
        events := postrider._outbox_between(v_low, v_below, _sweep_outbox.max_events);
        if cardinality(events) > 0 then
            -- There may be more, and the caller may take some only: from there on once more, but not over what was
            -- taken before. Below it the window is then gone through in small ones, dense as it is now.
            v_from := greatest(v_low, postrider._uuid_floor(postrider._uuid_time(events[1]) - interval '20 ms'));
            v_span := least(v_span, interval '1 s');
            exit;
        end if;
        v_walked := postrider._walked('outbox_pkey') - v_walked;
        v_met := v_met + v_walked;
        v_below := case when v_low > '00000000-0000-0000-0000-000000000000' then v_low end;
        if v_from is not null then
            v_from := null;
        elsif v_walked < 1000 then
            v_span := v_span * 2;
        elsif v_walked > 4000 then
            v_span := greatest(v_span / 2, interval '1 ms');
        end if;
        exit when v_below is null
            or extract(epoch from clock_timestamp()) - v_began_s > v_budget_s;
    end loop;
    -- A window may turn out far denser than those before it. What its step took too long, the next waits longer.
    v_now_s := extract(epoch from clock_timestamp());
    v_now_s := v_now_s + least(20 * greatest(v_now_s - v_began_s - v_budget_s, 0), 59);
    sweep := case when v_below is not null or v_met > 1000
        then array[coalesce(v_below::text, ''), extract(epoch from v_span)::text, v_now_s::text, v_start_s::text,
                   v_met::text, coalesce(v_from::text, '')] end;
end
$$;
comment on function postrider._sweep_outbox(uuid, text[], integer) is
    'Sweeps the part of outbox below a key; sweep: its state, null before (what there is was scanned just now), and after an end at which few dead entries were met; events: what was found.';
