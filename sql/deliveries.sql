-- The view deliveries: pending and finished, each delivery's latest run.
--
-- A plan locks every leaf of a partitioned table that is not excluded by a constant, and every index of it;
-- no bound that is computed at run time changes that. Hence:
--   · `event_id = …` reaches all three mentions of a partitioned table as a constant (through the equalities
--     of the anti-joins), so one leaf is locked;
--   · the event's type comes from a function that looks up one event with a plan of its own, so events is
--     not joined at all, and costs nothing where the column is not read;
--   · its time comes from the id. `event_id >= postrider._uuid_floor('2030-01-31')` leaves older days out.
-- pending and finished are a plain UNION ALL inside, so that `order by event_id desc limit 20` reads indexes.

create or replace function postrider._event_type(event_id uuid) returns text
language plpgsql stable security definer parallel safe
set search_path to pg_catalog, pg_temp
set plan_cache_mode to force_custom_plan
as $$
begin
    return (select e.event_type from postrider.events e where e.id = _event_type.event_id);
end
$$;
comment on function postrider._event_type(uuid) is
    'The type of an event, found without locking any leaf but its own.';

create or replace view postrider.deliveries as
select u.event_id,
       u.endpoint_id,
       n.tenant,
       postrider._event_type(u.event_id) as event_type,
       n.url,
       u.run,
       u.status,
       case when u.status <> 'pending' then u.reason
            when n.deleted_at is not null then 'endpoint deleted'
            when s.disabled_at is not null then 'endpoint disabled'
            when greatest(s.paused_until, s.ladder_paused_until) > (select postrider.now()) then 'endpoint paused'
            when s.rate_limited_until > (select postrider.now()) then 'rate limited'
            when s.lapsed_until > (select postrider.now()) then 'its workers were lost'
            when u.due_at <= (select postrider.now()) then null
            when u.failures = 0 then 'waits for deliver_at'
            else 'retry after ' || coalesce(u.last_http_status::text, 'no answer')
       end as reason,
       u.attempts,
       u.failures,
       u.last_http_status,
       u.last_error,
       case when u.status = 'pending' and n.deleted_at is null and s.disabled_at is null
            then greatest(u.due_at, postrider._not_before(s.rate_limited_until, s.ladder_paused_until,
                                                          s.paused_until, s.lapsed_until))
       end as next_attempt_at,
       postrider._uuid_time(u.event_id) as created_at,
       u.finished_at
  from (select p.event_id, p.endpoint_id, p.run, 'pending'::text as status, null::text as reason, p.attempts, p.failures,
               p.last_http_status, p.last_error, p.due_at, null::timestamptz as finished_at
          from postrider.pending p
        union all
        select f.event_id, f.endpoint_id, f.run, f.status, f.reason, f.attempts, f.failures,
               f.last_http_status, f.last_error, null, f.finished_at
          from postrider.finished f) u
  left join postrider.endpoints n on n.id = u.endpoint_id
  left join postrider.endpoint_state s on s.endpoint_id = u.endpoint_id
 where not exists (select from postrider.pending p
                    where p.event_id = u.event_id and p.endpoint_id = u.endpoint_id and p.run > u.run)
   and not exists (select from postrider.finished f
                    where f.event_id = u.event_id and f.endpoint_id = u.endpoint_id and f.run > u.run);

comment on view postrider.deliveries is
    'Every delivery with its latest run: what is still owed, and what ended within retention. Name the event_id, or bound it, where you can.';
comment on column postrider.deliveries.event_id is 'The event; the Webhook-Id.';
comment on column postrider.deliveries.endpoint_id is 'The endpoint.';
comment on column postrider.deliveries.tenant is 'The tenant of both.';
comment on column postrider.deliveries.event_type is 'The event''s type.';
comment on column postrider.deliveries.url is 'The endpoint''s URL as it is now.';
comment on column postrider.deliveries.run is '1 for the first sending; each replay counts one up.';
comment on column postrider.deliveries.status is 'pending, delivered, rejected, exhausted, expired, cancelled or skipped.';
comment on column postrider.deliveries.reason is 'Pending: why it waits; null when it is a worker''s turn. Ended: why, unless delivered.';
comment on column postrider.deliveries.attempts is 'Requests made in this run, 429 included.';
comment on column postrider.deliveries.failures is 'Failed attempts of this run.';
comment on column postrider.deliveries.last_http_status is 'Status of the last answer.';
comment on column postrider.deliveries.last_error is 'What went wrong last.';
comment on column postrider.deliveries.next_attempt_at is 'Not before this; infinity while paused without end, null while disabled or when ended.';
comment on column postrider.deliveries.created_at is 'When the event was emitted, to the millisecond.';
comment on column postrider.deliveries.finished_at is 'When it ended.';
