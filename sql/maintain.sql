-- maintain: leaves ahead, days past retention emptied, deliveries past their time to live ended, statistics summed. The workers
-- call it about once a minute; one runs at a time.
--
-- Never holds up an emit: every lock is waited for at most 50 ms (lock_timeout below), a step that does not get
-- its lock is left for the next run, and the one step that locks a parent (dropping an empty leaf) comes last.
-- Locks, in order: the maintain advisory lock (try only); endpoint_stats rows, which nobody else locks; default partitions (attach); old leaves ACCESS
-- EXCLUSIVE; endpoint_state rows SKIP LOCKED; pending rows SKIP LOCKED and with no endpoint's lock held or taken after; parents (drop).

create or replace function postrider.maintain(catch_up boolean default false) returns jsonb
language plpgsql security definer
set search_path to pg_catalog, pg_temp
set lock_timeout to '50ms'
set plan_cache_mode to force_custom_plan
as $$
declare
    v_now constant timestamptz := postrider.now();
    v_today constant date := (v_now at time zone 'UTC')::date;
    v_keep_from constant date :=
        ((v_now - (select s.retention from postrider.settings s)) at time zone 'UTC')::date;
    v_made integer := 0;
    v_moved bigint := 0;
    v_emptied integer := 0;
    v_owed text[] := '{}';
    v_busy text[] := '{}';
    v_expired integer := 0;
    v_cancelled integer := 0;
    v_dropped integer := 0;
    v_old record;
    v_parent text;
    v_step integer;
    v_more boolean := false;
    v_unsummed boolean := false;
    v_dropping timestamptz;
begin
    perform postrider._require_read_committed();
    if not pg_try_advisory_xact_lock(1886352244, 3) then
        return jsonb_build_object('busy', true);
    end if;

    -- History never holds up anything else.
    begin
        v_unsummed := postrider._sum_stats(100000);
        delete from postrider.endpoint_stats s where s.summed and s.hour < v_keep_from::timestamp at time zone 'UTC';
    exception when others then
        raise warning 'postrider: statistics could not be kept: %', sqlerrm;
    end;

    for v_old in
        select d.day from postrider._leaf_days() d (day)
         where d.day < v_keep_from order by d.day
    loop
        exit when v_emptied >= 2 and not maintain.catch_up;
        begin
            case postrider._empty_day(v_old.day)
                when 'emptied' then v_emptied := v_emptied + 1;
                when 'owed' then v_owed := v_owed || v_old.day::text;
                else null;
            end case;
        exception when lock_not_available or deadlock_detected then
            v_busy := v_busy || v_old.day::text;
        end;
    end loop;

    delete from postrider.idempotency_keys k
     where k.ctid = any (array(
           select x.ctid from postrider.idempotency_keys x
            where x.event_id < postrider._uuid_floor(v_keep_from::timestamp at time zone 'UTC')
            order by x.event_id limit 50000 for update skip locked));
    delete from postrider.endpoint_secrets s where s.expires_at < v_now - interval '1 day';
    delete from postrider.alerts a where a.dismissed_at < v_keep_from::timestamp at time zone 'UTC';

    for i in 1 .. case when maintain.catch_up then 20 else 2 end loop
        v_step := postrider._expire_overdue(v_now, 5000);
        v_expired := v_expired + v_step;
        v_more := v_step = 5000;
        exit when not v_more;
    end loop;
    for i in 1 .. case when maintain.catch_up then 20 else 2 end loop
        v_step := postrider._cancel_deleted(v_now, 5000);
        v_cancelled := v_cancelled + v_step;
        exit when v_step < 5000;
    end loop;

    -- Late: attaching a leaf locks the default partition, and so every emit of a day without one, until this
    -- transaction ends. Hence today first, and the rest in a run that finds today in place.
    begin
        v_moved := postrider._move_strays(v_today - 400, v_today + 400);
        if to_regclass(format('postrider.%I', postrider._leaf('events', v_today))) is null then
            lock table only postrider.events, only postrider.finished, only postrider.attempts in share row exclusive mode;
        end if;
        v_made := postrider._make_leaves(v_today, v_today + 1);
        if v_moved = 0 and v_made = 0 then
            v_made := postrider._make_leaves(v_today, v_today + 30);
        end if;
    exception when lock_not_available or deadlock_detected then
        v_busy := v_busy || 'leaves ahead'::text;
    end;

    -- Last: dropping a leaf locks its parent, and so every emit, until this transaction ends.
    v_dropping := clock_timestamp();
    for v_old in
        select d.day from postrider._leaf_days() d (day)
         where d.day < v_keep_from order by d.day limit case when maintain.catch_up then 1000 else 2 end
    loop
        begin
            foreach v_parent in array array['events', 'finished', 'attempts'] loop
                if postrider._is_empty(postrider._leaf(v_parent, v_old.day)) then
                    execute format('drop table postrider.%I', postrider._leaf(v_parent, v_old.day));
                    v_dropped := v_dropped + 1;
                end if;
            end loop;
        exception when lock_not_available or deadlock_detected then
            exit;
        end;
        exit when clock_timestamp() > v_dropping + interval '50 ms';
    end loop;

    return jsonb_build_object(
        'busy', false, 'more', v_more or v_step = 5000 or v_unsummed, 'leaves_made', v_made, 'strays_moved', v_moved, 'days_emptied', v_emptied,
        'days_still_owed', v_owed, 'waiting_for_locks', v_busy, 'expired', v_expired, 'cancelled', v_cancelled,
        'leaves_dropped', v_dropped);
end
$$;
comment on function postrider.maintain(boolean) is
    'Makes partitions ahead, empties days past retention that hold nothing still owed (at most two a run unless asked to catch up), ends deliveries past their time to live or of deleted endpoints, and sums statistics. Returns what it did.';

create or replace function postrider._expire_overdue(at timestamptz, max integer) returns integer
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_events uuid[];
    v_endpoints bigint[];
begin
    -- By key up to the shortest time to live: nothing younger can have expired.
    select array_agg(x.event_id), array_agg(x.endpoint_id) into v_events, v_endpoints
      from (select p.event_id, p.endpoint_id from postrider.pending p
             where p.event_id < postrider._uuid_floor(_expire_overdue.at - (select min(y.time_to_live) from postrider.policies y))
               and p.expires_at <= _expire_overdue.at
             order by p.event_id, p.endpoint_id limit _expire_overdue.max for update skip locked) x;
    return postrider._expire(v_events, v_endpoints, _expire_overdue.at);
end
$$;
comment on function postrider._expire_overdue(timestamptz, integer) is
    'Ends deliveries past their time to live, oldest events first, at most so many.';

create or replace function postrider._cancel_deleted(at timestamptz, max integer) returns integer
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_count integer;
begin
    with locked as (
        select p.event_id, p.endpoint_id
          from postrider.endpoints n
          join postrider.pending p on p.endpoint_id = n.id
         where n.deleted_at is not null
         limit _cancel_deleted.max for update of p skip locked
    ), gone as (
        delete from postrider.pending p using locked l
         where p.event_id = l.event_id and p.endpoint_id = l.endpoint_id
        returning p.event_id, p.endpoint_id, p.run, p.attempts, p.failures, p.last_http_status, p.last_error
    )
    insert into postrider.finished (event_id, endpoint_id, run, status, reason, attempts, failures,
                                    last_http_status, last_error, finished_at)
    select g.event_id, g.endpoint_id, g.run, 'cancelled', 'the endpoint was deleted', g.attempts, g.failures,
           g.last_http_status, g.last_error, _cancel_deleted.at
      from gone g;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
comment on function postrider._cancel_deleted(timestamptz, integer) is
    'Ends what deleted endpoints left owed, at most so many.';
