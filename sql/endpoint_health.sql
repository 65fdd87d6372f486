-- The view endpoint_health: live endpoints, what state they are in and how they do. No partitioned table.
-- Columns that count (backlog, rates, percentiles) cost nothing where they are not read.

create or replace function postrider._latency_sum(endpoint_id bigint, since timestamptz) returns bigint[]
language sql stable security definer parallel safe
set search_path to pg_catalog, pg_temp
as $$
    select array_agg(x.count order by x.bucket)
      from (select u.bucket, sum(u.count)::bigint as count
              from postrider.endpoint_stats t
             cross join lateral unnest(t.latency) with ordinality u (count, bucket)
             where t.endpoint_id = _latency_sum.endpoint_id and t.hour > _latency_sum.since
             group by u.bucket) x
$$;
comment on function postrider._latency_sum(bigint, timestamptz) is
    'The latency histogram of an endpoint over the hours that begin after a moment.';

create or replace view postrider.endpoint_health as
select n.id as endpoint_id,
       n.tenant,
       n.url,
       x.state,
       case x.state when 'rate_limited' then 'the endpoint asked to wait'
                    when 'active' then null else s.reason end as reason,
       case x.state when 'paused' then greatest(s.paused_until, s.ladder_paused_until, s.rate_limited_until)
                    when 'rate_limited' then s.rate_limited_until end as until,
       s.failures,
       s.rung,
       (select count(*) from (select from postrider.pending p where p.endpoint_id = n.id limit 10000) b) as backlog,
       (select d.due_at from postrider.pending d where d.endpoint_id = n.id order by d.due_at limit 1) as oldest_due_at,
       coalesce(n.rate, y.rate) as rate,
       coalesce(n.burst, y.burst) as burst,
       coalesce(n.concurrency, y.concurrency) as concurrency,
       (select round(sum(t.delivered)::numeric / nullif(sum(t.delivered + t.failed), 0), 4)
          from postrider.endpoint_stats t
         where t.endpoint_id = n.id and t.hour > (select postrider.now()) - interval '2 hours') as success_rate_1h,
       (select round(sum(t.delivered)::numeric / nullif(sum(t.delivered + t.failed), 0), 4)
          from postrider.endpoint_stats t
         where t.endpoint_id = n.id and t.hour > (select postrider.now()) - interval '25 hours') as success_rate_24h,
       postrider._latency_quantile(
           postrider._latency_sum(n.id, (select postrider.now()) - interval '25 hours'), 0.5) as p50_ms_24h,
       postrider._latency_quantile(
           postrider._latency_sum(n.id, (select postrider.now()) - interval '25 hours'), 0.95) as p95_ms_24h
  from postrider.endpoints n
  join postrider.endpoint_state s on s.endpoint_id = n.id
  join postrider.policies y on y.name = n.policy
 cross join lateral (
       select case when s.disabled_at is not null then 'disabled'
                   when greatest(s.paused_until, s.ladder_paused_until) > (select postrider.now()) then 'paused'
                   when s.rate_limited_until > (select postrider.now()) then 'rate_limited'
                   else 'active' end as state) x
 where n.deleted_at is null;

comment on view postrider.endpoint_health is
    'Every live endpoint: whether it is sent to, since when not and why, what it is owed, and how it answers.';
comment on column postrider.endpoint_health.endpoint_id is 'The endpoint.';
comment on column postrider.endpoint_health.tenant is 'Its tenant.';
comment on column postrider.endpoint_health.url is 'Where requests go.';
comment on column postrider.endpoint_health.state is 'active, rate_limited (it asked for it), paused (by a person or the ladder), disabled; where several hold, the last of these.';
comment on column postrider.endpoint_health.reason is 'Why, unless active.';
comment on column postrider.endpoint_health.until is 'When it is sent to again by itself; infinity: when a person resumes it; null: active, or disabled until a person enables it.';
comment on column postrider.endpoint_health.failures is 'Failed attempts since the last success; 429 excluded.';
comment on column postrider.endpoint_health.rung is 'The last rung of the ladder that fired since then.';
comment on column postrider.endpoint_health.backlog is 'Deliveries owed, counted up to 10,000.';
comment on column postrider.endpoint_health.oldest_due_at is 'When the first of them is or was due.';
comment on column postrider.endpoint_health.rate is 'Requests per second, its own or the policy''s.';
comment on column postrider.endpoint_health.burst is 'Requests at once after a quiet time, its own or the policy''s.';
comment on column postrider.endpoint_health.concurrency is 'Open requests, its own or the policy''s.';
comment on column postrider.endpoint_health.success_rate_1h is 'Delivered among answered or failed attempts, 429 excluded, of the clock hours that touch the last hour; null without any.';
comment on column postrider.endpoint_health.success_rate_24h is 'The same for the last 24 hours.';
comment on column postrider.endpoint_health.p50_ms_24h is 'Median duration of answered attempts in milliseconds, of the clock hours that touch the last 24 hours; from a histogram.';
comment on column postrider.endpoint_health.p95_ms_24h is 'The 95th percentile of the same.';
