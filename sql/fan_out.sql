-- fan_out: from outbox to pending, one caller at a time over the fleet, at most 2,000 deliveries a call.
--
-- Locks, in order: the fan_out advisory lock (try only), under which nobody else takes from outbox; the
-- endpoint_state rows of every endpoint concerned, ids ascending, in a statement of their own, even where the
-- mark is right already: whoever gives an endpoint up locks its row and then looks for work, and must find ours.
-- An endpoint that another transaction holds for long is not waited for: its deliveries go to `deferred` and are made
-- by a later call. It reads events in the same transaction that writes pending: that read's lock on the leaf
-- keeps retention's TRUNCATE away.

-- A function whose result has another form cannot be replaced.
do $$
begin
    if not exists (select from pg_catalog.pg_proc p
                    where p.oid = pg_catalog.to_regprocedure('postrider.fan_out(uuid, integer)')
                      and 'claimable' = any (p.proargnames)) then
        drop function if exists postrider.fan_out(uuid, integer), postrider._fan_out(uuid, integer, boolean);
    end if;
end
$$;

create or replace function postrider._fan_out(worker uuid, max_deliveries integer, patient boolean)
returns table (events integer, deliveries integer, more boolean, busy boolean, due bigint[], claimable boolean)
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
    v_ids uuid[];          -- events taken in this call, ascending
    v_large uuid;          -- one event with more endpoints than one step takes
    v_large_after bigint;
    v_large_found uuid[];
    v_budget integer := _fan_out.max_deliveries;
    v_events uuid[];       -- one element per delivery, with …
    v_endpoints bigint[];  -- … its endpoint, …
    v_deliver_at timestamptz[];
    v_created_at timestamptz[];
    v_done uuid[];         -- events whose outbox row goes
    v_last bigint;
    v_count integer;
    v_owners uuid[];
    v_unowned boolean;
    v_owner uuid;
    v_more boolean;
    v_deferring bigint[];  -- endpoints with deferred deliveries
    v_held bigint[];       -- endpoints that somebody holds
    v_resumed uuid[];      -- deferred deliveries made by this call: event, …
    v_resumed_at bigint[]; -- … endpoint
begin
    perform postrider._require_read_committed();
    perform postrider._require_durable_commit();
    events := 0; deliveries := 0; more := false; busy := false; due := '{}'; claimable := false;
    if not pg_try_advisory_xact_lock(1886352244, 2) then
        busy := true;
        return next;
        return;
    end if;

    perform postrider._plan_for(0);
    -- A large event goes on with a quarter of each call; newer small ones have the rest.
    select o.event_id, o.after_endpoint into v_large, v_large_after
      from postrider.outbox o where o.after_endpoint is not null order by o.event_id limit 1;
    if v_large is not null then
        v_budget := v_budget - v_budget / 4;
    end if;

    v_ids := postrider._outbox_head(1000);
    -- Distinct endpoints, one index read each: an endpoint held for long has many.
    v_deferring := array(
        with recursive d (endpoint_id) as (
            (select x.endpoint_id from postrider.deferred x order by x.endpoint_id limit 1)
            union all
            select (select x.endpoint_id from postrider.deferred x
                     where x.endpoint_id > d.endpoint_id order by x.endpoint_id limit 1)
              from d where d.endpoint_id is not null
        )
        select d.endpoint_id from d where d.endpoint_id is not null);
    if v_large is null and cardinality(v_ids) = 0 and cardinality(v_deferring) = 0 then
        return next;
        return;
    end if;
    perform postrider._relax_durable_commit();

    -- Which endpoints: matched once per distinct (tenant, event type), then laid out per event and cut to
    -- the budget.
    perform postrider._plan_for(cardinality(v_ids));
    with event as materialized (
        select e.* from postrider._events(v_ids) e
    ), type as materialized (
        select distinct e.tenant, e.event_type from event e where e.endpoint_id is null
    ), subscriber as materialized (
        select t.tenant, t.event_type,
               array(select s.endpoint_id
                       from postrider._subscribers(t.tenant, t.event_type, 0, v_budget + 1) s (endpoint_id)) as endpoints
          from type t
    ), owed as materialized (
        select e.id, e.deliver_at, e.created_at,
               case when e.endpoint_id is null then s.endpoints else array[e.endpoint_id] end as endpoints
          from event e
          left join subscriber s on s.tenant = e.tenant and s.event_type = e.event_type
    ), fitting as materialized (
        select o.*,
               sum(cardinality(o.endpoints)) over (order by o.id) as upto
          from owed o
         where cardinality(o.endpoints) <= v_budget
    )
    select (select array_agg(o.id order by o.id) from owed o where cardinality(o.endpoints) > v_budget),
           (select array_agg(f.id order by f.id) from fitting f where f.upto <= v_budget),
           coalesce(array_agg(x.id), '{}'), coalesce(array_agg(x.endpoint_id), '{}'), array_agg(x.deliver_at), array_agg(x.created_at)
      into v_large_found, v_done, v_events, v_endpoints, v_deliver_at, v_created_at
      from (select f.id, u.endpoint_id, f.deliver_at, f.created_at from fitting f, unnest(f.endpoints) u (endpoint_id)
             where f.upto <= v_budget order by f.id, u.endpoint_id) x;

    if v_large_found is not null then
        update postrider.outbox o set after_endpoint = 0 where o.event_id = any (v_large_found);
        if v_large is null then
            v_large := v_large_found[1];
            v_large_after := 0;
        end if;
    end if;
    -- What is left of outbox after this call.
    v_more := cardinality(v_ids) = 1000
        or coalesce(cardinality(v_done), 0) + coalesce(cardinality(v_large_found), 0) < cardinality(v_ids);

    if v_large is not null then
        v_budget := greatest(_fan_out.max_deliveries - cardinality(v_endpoints), 1);
        with step as (
            select s.endpoint_id, e.deliver_at, e.created_at
              from postrider._events(array[v_large]) e,
                   postrider._subscribers(e.tenant, e.event_type, v_large_after, v_budget) s (endpoint_id)
        )
        select v_events || array_agg(v_large), v_endpoints || array_agg(t.endpoint_id order by t.endpoint_id),
               v_deliver_at || array_agg(t.deliver_at), v_created_at || array_agg(t.created_at),
               max(t.endpoint_id), count(*)
          into v_events, v_endpoints, v_deliver_at, v_created_at, v_last, v_count
          from step t;
        if v_count < v_budget then
            v_done := v_done || v_large;
        else
            update postrider.outbox o set after_endpoint = v_last where o.event_id = v_large;
            v_more := true;
        end if;
    end if;

    delete from postrider.outbox o where o.event_id = any (v_done);
    v_more := v_more or exists (select from postrider.outbox o where o.after_endpoint is not null);

    v_held := postrider._lock_endpoints(v_endpoints || v_deferring, v_deferring, _fan_out.patient);
    v_now := postrider.now();

    -- Deferred deliveries whose endpoint is free again; and new ones that must wait.
    if cardinality(v_deferring) > 0 then
        with resumed as (
            delete from postrider.deferred d
             where (d.endpoint_id, d.event_id) in (
                   select e.id, x.event_id
                     from unnest(v_deferring) e (id)
                    cross join lateral (select y.event_id from postrider.deferred y
                                         where y.endpoint_id = e.id
                                         order by y.event_id limit _fan_out.max_deliveries) x
                    where e.id <> all (v_held)
                    order by x.event_id, e.id limit _fan_out.max_deliveries)
            returning d.event_id, d.endpoint_id
        )
        select array_agg(r.event_id), array_agg(r.endpoint_id) into v_resumed, v_resumed_at from resumed r;
        v_more := v_more or coalesce(cardinality(v_resumed), 0) = _fan_out.max_deliveries;
    end if;
    if cardinality(v_held) > 0 then
        insert into postrider.deferred (endpoint_id, event_id)
        select u.endpoint_id, u.event_id from unnest(v_events, v_endpoints) u (event_id, endpoint_id)
         where u.endpoint_id = any (v_held);
        select coalesce(array_agg(u.event_id), '{}'), coalesce(array_agg(u.endpoint_id), '{}'),
               array_agg(u.deliver_at), array_agg(u.created_at)
          into v_events, v_endpoints, v_deliver_at, v_created_at
          from unnest(v_events, v_endpoints, v_deliver_at, v_created_at) u (event_id, endpoint_id, deliver_at, created_at)
         where u.endpoint_id <> all (v_held);
    end if;
    if v_resumed is not null then
        perform postrider._plan_for(cardinality(v_resumed));
        select v_events || array_agg(u.event_id), v_endpoints || array_agg(u.endpoint_id),
               v_deliver_at || array_agg(e.deliver_at), v_created_at || array_agg(e.created_at)
          into v_events, v_endpoints, v_deliver_at, v_created_at
          from unnest(v_resumed, v_resumed_at) u (event_id, endpoint_id)
          join postrider._events(v_resumed) e on e.id = u.event_id;
    end if;
    perform postrider._plan_for(cardinality(v_events));
    perform postrider._lower_low_due(v_endpoints, v_now);

    -- A new statement: endpoints and state are as of the locks.
    with judged as materialized (
        select o.event_id, o.endpoint_id, s.disabled_at, n.deleted_at, p.when_disabled,
               greatest(v_now, o.deliver_at) as due_at,
               coalesce(o.deliver_at, o.created_at) + p.time_to_live as expires_at
          from unnest(v_events, v_endpoints, v_deliver_at, v_created_at) o (event_id, endpoint_id, deliver_at, created_at)
          join postrider.endpoints n on n.id = o.endpoint_id
          join postrider.policies p on p.name = n.policy
          left join postrider.endpoint_state s on s.endpoint_id = o.endpoint_id
    ), refused as (
        insert into postrider.finished (event_id, endpoint_id, run, status, reason, attempts, failures, finished_at)
        select j.event_id, j.endpoint_id, 1,
               case when j.deleted_at is not null then 'cancelled' else 'skipped' end,
               case when j.deleted_at is not null then 'endpoint was deleted before the event was fanned out'
                    else 'endpoint was disabled when the event was fanned out' end,
               0, 0, v_now
          from judged j
         where j.deleted_at is not null or (j.disabled_at is not null and j.when_disabled = 'skip')
    ), added as (
        insert into postrider.pending (event_id, endpoint_id, due_at, expires_at)
        select j.event_id, j.endpoint_id, j.due_at, j.expires_at
          from judged j
         where j.deleted_at is null and (j.disabled_at is null or j.when_disabled = 'wait')
         order by j.event_id, j.endpoint_id
        returning endpoint_id, due_at
    ), earliest as (
        select a.endpoint_id, min(a.due_at) as due_at from added a group by a.endpoint_id
    ), marked as (
        update postrider.endpoint_state s
           set next_claim_at = greatest(postrider._not_before(s.rate_limited_until, s.ladder_paused_until,
                                                              s.paused_until, s.lapsed_until),
                                        least(s.next_claim_at, d.due_at))
          from earliest d
         where s.endpoint_id = d.endpoint_id and s.disabled_at is null
           and s.next_claim_at is distinct from
               greatest(postrider._not_before(s.rate_limited_until, s.ladder_paused_until,
                                              s.paused_until, s.lapsed_until),
                        least(s.next_claim_at, d.due_at))
    )
    select array_agg(d.endpoint_id order by d.endpoint_id) filter (where s.owner = _fan_out.worker and d.due_at <= v_now),
           array_agg(distinct s.owner) filter (where s.owner <> _fan_out.worker and d.due_at <= v_now),
           bool_or(d.due_at <= v_now) filter (where s.owner is null),
           coalesce(bool_or(s.owner is null), false),
           coalesce((select count(*) from added), 0)
      into due, v_owners, v_unowned, claimable, deliveries
      from earliest d join postrider.endpoint_state s on s.endpoint_id = d.endpoint_id;

    foreach v_owner in array coalesce(v_owners, '{}') loop
        perform postrider._wake(v_owner);
    end loop;
    if v_unowned then
        perform postrider._wake(null);
    end if;
    events := coalesce(cardinality(v_done), 0);
    deliveries := coalesce(deliveries, 0);
    due := coalesce(due, '{}');
    more := v_more;
    return next;
end
$$;
comment on function postrider._fan_out(uuid, integer, boolean) is
    'What fan_out does; patient: it waits for endpoints that another call of the engine holds.';

create or replace function postrider.fan_out(worker uuid, max_deliveries integer default 2000)
returns table (events integer, deliveries integer, more boolean, busy boolean, due bigint[], claimable boolean)
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    -- In one sub-transaction, so that what was locked is let go, and what is locked and then written is so by one
    -- transaction id.
    begin
        return query select f.events, f.deliveries, f.more, f.busy, f.due, f.claimable
                       from postrider._fan_out(fan_out.worker, fan_out.max_deliveries, true) f;
        return;
    exception when lock_not_available or deadlock_detected then
        null;
    end;
    return query select f.events, f.deliveries, f.more, f.busy, f.due, f.claimable
                   from postrider._fan_out(fan_out.worker, fan_out.max_deliveries, false) f;
end
$$;
comment on function postrider.fan_out(uuid, integer) is
    'Turns events of the outbox into deliveries; due: endpoints of the caller that have work now; claimable: endpoints of nobody have some, now or later; more: call again; busy: another worker is at it.';
