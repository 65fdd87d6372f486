-- The view queue_depth: one row, how much is waiting and for what. It counts outbox and pending as they are,
-- so it costs about a second for each few million deliveries owed.

create or replace view postrider.queue_depth as
select (select count(*) from postrider.outbox) + (select count(*) from postrider.deferred) as outbox,
       d.due,
       d.later,
       d.oldest_due_age,
       e.endpoints_active,
       e.endpoints_paused,
       e.endpoints_disabled,
       (select count(*) from postrider.workers) as workers
  from (select postrider.now() as at offset 0) c
 cross join lateral (
       select count(*) filter (where x.ready_at <= c.at) as due,
              count(*) filter (where x.ready_at <= c.at is not true) as later,
              c.at - min(x.ready_at) filter (where x.ready_at <= c.at) as oldest_due_age
         from (select case when s.disabled_at is null
                           then greatest(p.due_at, postrider._not_before(s.rate_limited_until, s.ladder_paused_until,
                                                                         s.paused_until, s.lapsed_until))
                      end as ready_at
                 from postrider.pending p
                 left join postrider.endpoint_state s on s.endpoint_id = p.endpoint_id) x) d
 cross join (
       select count(*) filter (where h.state = 'active') as endpoints_active,
              count(*) filter (where h.state in ('paused', 'rate_limited')) as endpoints_paused,
              count(*) filter (where h.state = 'disabled') as endpoints_disabled
         from postrider.endpoint_health h) e;

comment on view postrider.queue_depth is
    'One row: how much is waiting. A growing due or oldest_due_age means that workers do not keep up, or that endpoints are slower than their events.';
comment on column postrider.queue_depth.outbox is 'Events not fanned out yet, or not to all.';
comment on column postrider.queue_depth.due is 'Deliveries that may be sent now: due, and their endpoint neither paused nor disabled.';
comment on column postrider.queue_depth.later is 'All other deliveries owed: waiting for a retry, for deliver_at, or for their endpoint.';
comment on column postrider.queue_depth.oldest_due_age is 'For how long the first of those due now has been due; null without any.';
comment on column postrider.queue_depth.endpoints_active is 'Endpoints that are sent to.';
comment on column postrider.queue_depth.endpoints_paused is 'Endpoints paused by a person or the ladder, or rate-limited.';
comment on column postrider.queue_depth.endpoints_disabled is 'Endpoints disabled until a person enables them.';
comment on column postrider.queue_depth.workers is 'Workers registered, living or not yet found dead.';
