-- fetch_deliveries: what is due for endpoints that the caller owns, and their current settings.
--
-- Locks: none, but for deliveries past their time to live, which are ended here (FOR UPDATE SKIP LOCKED). Rows
-- in the caller's hand are named in `skip`: nothing is marked when a delivery is fetched.

create or replace function postrider.fetch_deliveries(
    worker uuid, endpoint_ids bigint[], limits integer[], skip_events uuid[], skip_endpoints bigint[], max_bytes bigint
)
returns table (endpoint_id bigint, settings jsonb, event_id uuid, run integer, number integer,
               event_type text, body text, expires_in_ms bigint, overdue_ms bigint)
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now constant timestamptz := postrider.now();
    v_events uuid[];       -- one element per delivery, with its endpoint, …
    v_endpoints bigint[];
    v_runs integer[];
    v_numbers integer[];
    v_expire_at timestamptz[];
    v_due_at timestamptz[];
    v_low uuid;
    v_high uuid;
    v_live bigint[];       -- the endpoint of each that is not past its time to live
    v_expired boolean;
    v_ended integer := 0;
begin
    perform postrider._require_read_committed();
    perform postrider._plan_for(cardinality(fetch_deliveries.endpoint_ids));

    -- Deliveries are read in the order of their index, or not at all (_earliest_due says why).
    perform set_config('enable_sort', 'off', true);
    -- In turns over the endpoints, so that a cut by bytes takes from each, as they are named: the caller knows who had
    -- nothing last time.
    select array_agg(x.event_id), array_agg(x.endpoint_id), array_agg(x.run), array_agg(x.number), array_agg(x.expires_at),
           array_agg(x.due_at), min(x.event_id::text collate "C")::uuid, max(x.event_id::text collate "C")::uuid,
           bool_or(x.expires_at <= v_now), array_agg(x.endpoint_id) filter (where x.expires_at > v_now)
      into v_events, v_endpoints, v_runs, v_numbers, v_expire_at, v_due_at, v_low, v_high, v_expired, v_live
      from (select c.*, w.endpoint_id, w.place
              from unnest(fetch_deliveries.endpoint_ids, fetch_deliveries.limits) with ordinality w (endpoint_id, max, place)
              join postrider.endpoint_state s
                on s.endpoint_id = w.endpoint_id and s.owner = fetch_deliveries.worker and s.disabled_at is null
               and coalesce(postrider._not_before(s.rate_limited_until, s.ladder_paused_until,
                                                  s.paused_until, s.lapsed_until) <= v_now, true)
             cross join lateral (select (select k.low_due_at from postrider.low_keys k where k.endpoint_id = w.endpoint_id
                                          order by k.low_due_at desc limit 1) as due_at offset 0) low
             cross join lateral (
                   select d.event_id, d.run, d.number, d.expires_at, d.due_at, row_number() over (order by d.due_at, d.event_id) as turn
                     from (select p.event_id, p.run, p.attempts + 1 as number, p.due_at, p.expires_at
                             from postrider.pending p
                            where p.endpoint_id = w.endpoint_id and p.due_at <= v_now
                              and p.due_at >= coalesce(low.due_at, '-infinity')
                              and (p.event_id, p.endpoint_id) not in (
                                  select k.event_id, k.endpoint_id
                                    from unnest(fetch_deliveries.skip_events, fetch_deliveries.skip_endpoints)
                                         k (event_id, endpoint_id))
                            order by p.due_at, p.event_id limit w.max) d) c
             order by c.turn, w.place) x;

    if v_expired then
        -- Those that another transaction is ending already do not count: nothing new lies behind them yet.
        v_ended := postrider._expire(v_events, v_endpoints, v_now);
    end if;

    return query
        select s.endpoint_id,
               case when s.owner = fetch_deliveries.worker then jsonb_build_object(
                   'url', n.url, 'headers', n.headers, 'signature', n.signature,
                   'secrets', (select jsonb_agg(x.secret order by x.id desc) from postrider.endpoint_secrets x
                                where x.endpoint_id = s.endpoint_id and (x.expires_at is null or x.expires_at > v_now)),
                   'rate', coalesce(n.rate, p.rate), 'burst', coalesce(n.burst, p.burst),
                   'concurrency', coalesce(n.concurrency, p.concurrency),
                   'probing', s.rung > 0 and s.failures > 0,
                   'connect_timeout_ms', postrider._ms(p.connect_timeout),
                   'request_timeout_ms', postrider._ms(p.request_timeout),
                   'pause_default_ms', postrider._ms(p.pause_default),
                   'pause_min_ms', postrider._ms(p.pause_min), 'pause_max_ms', postrider._ms(p.pause_max),
                   'pause_on_503', p.pause_on_503,
                   'stopped', s.disabled_at is not null or n.deleted_at is not null,
                   'paused_ms', postrider._ms_until(postrider._not_before(s.rate_limited_until, s.ladder_paused_until,
                                                                          s.paused_until, s.lapsed_until), v_now),
                   'next_due_ms', (select postrider._ms_until(d.due_at, v_now) from postrider.pending d
                                    where d.endpoint_id = s.endpoint_id and d.due_at > v_now
                                    order by d.due_at limit 1),
                   'due', coalesce(f.due, 0) + case when v_ended > 0 then 1 else 0 end
               ) end,
               null::uuid, null::integer, null::integer, null::text, null::text, null::bigint, null::bigint
          from unnest(fetch_deliveries.endpoint_ids, fetch_deliveries.limits) w (endpoint_id, max)
          join postrider.endpoint_state s on s.endpoint_id = w.endpoint_id
          join postrider.endpoints n on n.id = s.endpoint_id
          join postrider.policies p on p.name = n.policy
          left join (select l.id, count(*) as due from unnest(v_live) l (id) group by l.id) f on f.id = s.endpoint_id;

    -- The bounds on the id keep the plan off all other leaves, if it is made for them. Row by row: ids that are newer
    -- than the table's statistics look like none, and are compared each with each.
    perform set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_sort', 'on', true),
            set_config('enable_seqscan', 'off', true);
    return query
        select x.endpoint_id, null::jsonb, x.event_id, x.run, x.number, x.event_type, x.body, x.expires_in_ms, x.overdue_ms
          from (select f.endpoint_id, f.event_id, f.run, f.number, e.event_type, e.body,
                       postrider._ms_until(f.expires_at, v_now) as expires_in_ms,
                       postrider._ms(v_now - f.due_at) as overdue_ms, f.turn,
                       sum(octet_length(e.body)) over (order by f.turn) as bytes
                  from unnest(v_events, v_endpoints, v_runs, v_numbers, v_expire_at, v_due_at)
                       with ordinality f (event_id, endpoint_id, run, number, expires_at, due_at, turn)
                 cross join lateral (select y.event_type, y.body from postrider.events y
                                      where y.id = f.event_id and y.id between v_low and v_high offset 0) e
                 where f.expires_at > v_now) x
         -- One body larger than the bound still passes, alone.
         where x.bytes <= fetch_deliveries.max_bytes or x.bytes = octet_length(x.body)
         order by x.turn;
end
$$;
comment on function postrider.fetch_deliveries(uuid, bigint[], integer[], uuid[], bigint[], bigint) is
    'For each endpoint a row with its settings (null: no longer the caller''s), then a row per due delivery, oldest due first, at most limits[n] an endpoint and max_bytes of bodies in all, taken in turns from the endpoints as they are named; number is the attempt this would be. settings.due counts what was found due, cut by limits only, one more when something expired: where fewer rows follow, or as many as the limit, there is more.';
