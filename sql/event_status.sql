-- The view event_status: an event and what became of its deliveries, latest runs only.
--
-- The counts of finished come from a function that looks at one event with a plan of its own, so that a query
-- locks the leaves of events it names and no leaf of finished but the event's; and they are computed for the
-- rows that are shown, after any ORDER BY and LIMIT. `event_id = …` or a bound by postrider._uuid_floor('…')
-- keeps the query off the other days.

create or replace function postrider._count_finished(event_id uuid, delivered boolean) returns bigint
language plpgsql stable security definer parallel safe
set search_path to pg_catalog, pg_temp
set plan_cache_mode to force_custom_plan
as $$
#variable_conflict use_column
begin
    return (select count(*)
              from (select distinct on (f.endpoint_id) f.endpoint_id, f.status
                      from postrider.finished f where f.event_id = _count_finished.event_id
                     order by f.endpoint_id, f.run desc) x
             where (x.status = 'delivered') = coalesce(_count_finished.delivered, x.status = 'delivered')
               and not exists (select from postrider.pending p
                                where p.event_id = _count_finished.event_id and p.endpoint_id = x.endpoint_id));
end
$$;
comment on function postrider._count_finished(uuid, boolean) is
    'How many deliveries of an event ended, delivered or otherwise; null: both. Found without locking any leaf but its own.';

create or replace view postrider.event_status as
select e.id as event_id,
       e.tenant,
       e.event_type,
       e.created_at,
       case when exists (select from postrider.outbox o where o.event_id = e.id)
                 or exists (select from postrider.deferred d where d.event_id = e.id) then 'accepted'
            when exists (select from postrider.pending p where p.event_id = e.id)
                 or postrider._count_finished(e.id, null) > 0 then 'fanned_out'
            else 'unmatched' end as state,
       (select count(*) from postrider.pending p where p.event_id = e.id)
           + postrider._count_finished(e.id, null) as deliveries,
       (select count(*) from postrider.pending p where p.event_id = e.id) as pending,
       postrider._count_finished(e.id, true) as delivered,
       postrider._count_finished(e.id, false) as failed
  from postrider.events e;

comment on view postrider.event_status is
    'Every event within retention with the state of its deliveries. Name the event_id, or bound it, where you can.';
comment on column postrider.event_status.event_id is 'The event; the Webhook-Id.';
comment on column postrider.event_status.tenant is 'Its tenant.';
comment on column postrider.event_status.event_type is 'Its type.';
comment on column postrider.event_status.created_at is 'When it was emitted.';
comment on column postrider.event_status.state is 'accepted: not fanned out yet, or not to all; fanned_out; unmatched: nobody was subscribed.';
comment on column postrider.event_status.deliveries is 'To how many endpoints it is owed or was.';
comment on column postrider.event_status.pending is 'Of these, still owed.';
comment on column postrider.event_status.delivered is 'Of these, answered with a 2xx.';
comment on column postrider.event_status.failed is 'Of these, ended otherwise: rejected, exhausted, expired, cancelled or skipped.';
