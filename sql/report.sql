-- report_attempts: takes a batch of attempts, settles their deliveries, counts failures, writes history.
--
-- Locks, in order: endpoint_state of the endpoints reported on, ids ascending (of one that another transaction
-- holds for long nothing is taken: `held`, report again), which cover their pending rows but for one thing: whoever ends
-- what is expired, or owed by a deleted endpoint, locks the row alone. So the statement that judges counts what it
-- wrote, and where that is less than it judged the call begins anew. Then low_keys of those endpoints, which their lock
-- covers, and append-only tables. Every judgement is made in a statement after the locks.
--
-- Idempotent: an attempt moves its delivery only if it is the next one of the current run, so a report
-- repeated after its answer was lost changes nothing. A worker that no longer owns the endpoint can only
-- settle: a late 2xx for a delivery still owed. What was sent and is not made any more, since a crash undid the
-- fan-out (_relax_durable_commit), is `held` until it is made again, lest a known answer be asked for twice. History (attempts, statistics) comes last, each in a block of
-- its own: a failure there is told to the caller and never undoes state.

create or replace function postrider._report_attempts(
    worker uuid, seqs bigint[], event_ids uuid[], endpoint_ids bigint[], runs integer[], numbers integer[],
    ended_ago_ms bigint[], durations_ms integer[], http_statuses integer[], error_codes text[], errors text[],
    waits_ms bigint[], answers text[], patient boolean
)
returns table (endpoint_id bigint, owned boolean, stopped boolean, paused_ms bigint, probing boolean,
               next_due_ms bigint, history_lost boolean, held boolean)
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
    v_moved bigint[];
    v_written bigint;
    v_lost boolean := false;
    v_held bigint[];
    v_undone bigint[];       -- attempts at deliveries that a crash undid, by seq, and …
    v_undone_at bigint[];    -- … their endpoints
    v_ids bigint[];          -- the endpoints reported on, and …
    v_due_at timestamptz[];  -- … the earliest delivery owed by each
    v_walked bigint;
begin
    perform postrider._require_read_committed();
    perform postrider._require_durable_commit();

    -- By endpoints: attempts are joined by index only, and planning costs as much as settling a hundred.
    perform postrider._plan_for((select count(distinct u.id)::integer from unnest(_report_attempts.endpoint_ids) u (id)));
    v_held := postrider._lock_endpoints(_report_attempts.endpoint_ids, '{}', _report_attempts.patient);
    if cardinality(v_held) > 0 then
        return query select h.id, true, true, 0::bigint, true, null::bigint, false, true from unnest(v_held) h (id);
        select array_agg(r.seq), array_agg(r.event_id), array_agg(r.endpoint_id), array_agg(r.run), array_agg(r.number),
               array_agg(r.ended_ago_ms), array_agg(r.duration_ms), array_agg(r.http_status), array_agg(r.error_code),
               array_agg(r.error), array_agg(r.wait_ms), array_agg(r.answer)
          into seqs, event_ids, endpoint_ids, runs, numbers, ended_ago_ms, durations_ms, http_statuses, error_codes,
               errors, waits_ms, answers
          from unnest(seqs, event_ids, endpoint_ids, runs, numbers, ended_ago_ms, durations_ms, http_statuses,
                      error_codes, errors, waits_ms, answers)
               r (seq, event_id, endpoint_id, run, number, ended_ago_ms, duration_ms, http_status,
                  error_code, error, wait_ms, answer)
         where r.endpoint_id <> all (v_held);
        if seqs is null then
            return;
        end if;
    end if;
    v_now := postrider.now();
    perform postrider._lower_low_due(_report_attempts.endpoint_ids, v_now);

    with reported as materialized (
        select distinct on (r.event_id, r.endpoint_id) r.seq, r.event_id, r.endpoint_id, r.run, r.number,
               v_now - r.ended_ago_ms * interval '1 ms' as ended_at,
               v_now - (r.ended_ago_ms + r.duration_ms) * interval '1 ms' as started_at,
               r.http_status, r.error_code, r.error, r.wait_ms * interval '1 ms' as wait
          from unnest(seqs, event_ids, endpoint_ids, runs, numbers, ended_ago_ms, durations_ms, http_statuses,
                      error_codes, errors, waits_ms)
               r (seq, event_id, endpoint_id, run, number, ended_ago_ms, duration_ms, http_status,
                  error_code, error, wait_ms)
         order by r.event_id, r.endpoint_id, r.seq
    ), endpoint as materialized (
        -- Once each: behind an old snapshot a lookup walks all versions of its state.
        select s.endpoint_id, s.owner is not distinct from _report_attempts.worker as owned, s.enabled_at, y.*
          from postrider.endpoint_state s
          join postrider.endpoints n on n.id = s.endpoint_id
          join postrider.policies y on y.name = n.policy
         where s.endpoint_id = any (_report_attempts.endpoint_ids)
    ), judged as materialized (
        select r.seq, r.event_id, r.endpoint_id, r.ended_at, r.http_status, r.error_code, r.error,
               p.run, p.attempts, p.failures, p.rate_limited, p.expires_at, p.place,
               postrider._judge(r.http_status, r.error_code, p.failures, n.max_attempts, n.retry_statuses) as outcome,
               n.backoff_base, n.backoff_factor, n.backoff_cap, n.backoff_jitter,
               n.owned and (n.enabled_at is null or r.started_at >= n.enabled_at) as counts,
               n.owned and n.gone_disables and r.http_status = 410
                   and (n.enabled_at is null or r.started_at >= n.enabled_at) as gone
          from reported r
          join endpoint n on n.endpoint_id = r.endpoint_id
         -- Row by row: `offset 0` keeps the plan from beginning with pending, which looks empty to it when all it
         -- holds is dead.
         cross join lateral (select x.*, x.ctid as place from postrider.pending x
                              where x.event_id = r.event_id and x.endpoint_id = r.endpoint_id offset 0) p
         where p.run = r.run
           and case when n.owned then p.attempts = r.number - 1
                    else r.http_status between 200 and 299 end
    ), ended as (
        delete from postrider.pending p
         where p.ctid = any (array(select j.place from judged j where j.outcome in ('delivered', 'rejected', 'exhausted')))
        returning 1
    ), finished as (
        insert into postrider.finished (event_id, endpoint_id, run, status, reason, attempts, failures,
                                        last_http_status, last_error, finished_at)
        select j.event_id, j.endpoint_id, j.run, j.outcome,
               postrider._reason(j.outcome, j.http_status, j.error_code, j.failures),
               j.attempts + 1, j.failures + (j.outcome <> 'delivered')::integer, j.http_status, j.error, v_now
          from judged j
         where j.outcome in ('delivered', 'rejected', 'exhausted')
    ), kept as (
        update postrider.pending p
           set attempts = p.attempts + 1,
               failures = p.failures + (j.outcome = 'retry')::integer,
               rate_limited = p.rate_limited + (j.outcome = 'rate_limited')::integer,
               due_at = case when j.outcome = 'retry'
                             -- Not before now, since a low key may lie there.
                             then greatest(least(v_now + postrider._retry_delay(j.backoff_base, j.backoff_factor, j.backoff_cap,
                                                                                j.backoff_jitter, p.failures + 1),
                                                 p.expires_at), v_now)
                             else p.due_at end,
               last_http_status = j.http_status, last_error = j.error
          from judged j
         where p.ctid = j.place and j.outcome in ('retry', 'rate_limited')
        returning 1
    ), counted as (
        select j.endpoint_id, j.seq, j.ended_at, j.outcome = 'delivered' as success,
               max(j.seq) filter (where j.outcome = 'delivered') over (partition by j.endpoint_id) as success_seq
          from judged j
         where j.counts and j.outcome <> 'rate_limited'
    ), streak as (
        select c.endpoint_id, bool_or(c.success) as succeeded,
               count(*) filter (where not c.success and c.seq > coalesce(c.success_seq, -1)) as failures,
               min(c.ended_at) filter (where not c.success and c.seq > coalesce(c.success_seq, -1)) as since
          from counted c group by c.endpoint_id
    ), asked as (
        -- A pause counts from the answer and is taken from every answer to the owner, whatever became of the
        -- delivery: the endpoint spoke.
        select r.endpoint_id,
               max(r.ended_at + postrider._pause(r.http_status, r.wait, n.pause_default, n.pause_min,
                                                 n.pause_max, n.pause_on_503)) as until
          from reported r
          join endpoint n on n.endpoint_id = r.endpoint_id
         where r.http_status in (429, 503)
         group by r.endpoint_id
    ), wanted as (
        select s.endpoint_id,
               case when k.succeeded then k.failures else s.failures + coalesce(k.failures, 0) end::integer as failures,
               case when k.succeeded and k.failures = 0 then null
                    -- Never the old value: the ladder knows a new streak by it.
                    when k.succeeded then greatest(k.since, s.failing_since + interval '1 us')
                    else coalesce(s.failing_since, k.since) end as failing_since,
               case when a.until > v_now then greatest(s.rate_limited_until, a.until)
                    else s.rate_limited_until end as rate_limited_until,
               case when g.endpoint_id is not null then coalesce(s.disabled_at, v_now) else s.disabled_at end as disabled_at,
               case when g.endpoint_id is not null and s.disabled_at is null then 'the endpoint answered 410 Gone'
                    else s.reason end as reason
          from postrider.endpoint_state s
          left join streak k on k.endpoint_id = s.endpoint_id
          left join asked a on a.endpoint_id = s.endpoint_id
          left join (select distinct j.endpoint_id from judged j where j.gone) g on g.endpoint_id = s.endpoint_id
         where s.endpoint_id = any (_report_attempts.endpoint_ids) and s.owner = _report_attempts.worker
    ), state as (
        update postrider.endpoint_state s
           set failures = w.failures, failing_since = w.failing_since,
               rate_limited_until = w.rate_limited_until, disabled_at = w.disabled_at, reason = w.reason,
               lapses = 0, lapsed_until = null,
               next_claim_at = case when w.disabled_at is not null then null
                                    when s.next_claim_at is null then null
                                    else greatest(s.next_claim_at, w.rate_limited_until) end
          from wanted w
         where s.endpoint_id = w.endpoint_id
           and (s.failures, s.failing_since, s.rate_limited_until, s.disabled_at, s.lapses)
               is distinct from (w.failures, w.failing_since, w.rate_limited_until, w.disabled_at, 0)
    )
    select coalesce(array_agg(j.seq), '{}'), (select count(*) from ended) + (select count(*) from kept)
      into v_moved, v_written
      from judged j;
    if v_written < cardinality(v_moved) then
        raise exception using errcode = 'serialization_failure', message = 'a delivery reported on ended meanwhile';
    end if;

    v_undone := '{}';
    v_undone_at := '{}';
    if cardinality(v_moved) < cardinality(seqs) then
        -- The lock on the endpoint keeps such a delivery from being made meanwhile.
        select coalesce(array_agg(r.seq), '{}'), coalesce(array_agg(distinct r.endpoint_id), '{}') into v_undone, v_undone_at
          from unnest(seqs, event_ids, endpoint_ids, runs) r (seq, event_id, endpoint_id, run)
         where r.run = 1 and r.seq <> all (v_moved)
           and (exists (select from postrider.outbox o where o.event_id = r.event_id)
                or exists (select from postrider.deferred d where d.endpoint_id = r.endpoint_id and d.event_id = r.event_id))
           and not exists (select from postrider.pending p where p.event_id = r.event_id and p.endpoint_id = r.endpoint_id)
           and not exists (select from postrider.finished f where f.event_id = r.event_id and f.endpoint_id = r.endpoint_id);
    end if;

    begin
        insert into postrider.attempts (event_id, endpoint_id, worker, seq, run, number, outcome, started_at, duration_ms,
                                        http_status, error_code, error, retry_after, answer, stale)
        select r.event_id, r.endpoint_id, _report_attempts.worker, r.seq, r.run, r.number,
               case when r.http_status between 200 and 299 then 'delivered'
                    when r.http_status = 429 then 'rate_limited' else 'failed' end,
               v_now - (r.ended_ago_ms + r.duration_ms) * interval '1 ms', r.duration_ms, r.http_status,
               r.error_code, r.error, r.wait_ms * interval '1 ms', r.answer, not (r.seq = any (v_moved))
          from unnest(seqs, event_ids, endpoint_ids, runs, numbers, ended_ago_ms, durations_ms, http_statuses,
                      error_codes, errors, waits_ms, answers)
               r (seq, event_id, endpoint_id, run, number, ended_ago_ms, duration_ms, http_status,
                  error_code, error, wait_ms, answer)
         where r.seq <> all (v_undone)
        on conflict do nothing;
    exception when others then
        raise warning 'postrider: attempts could not be logged: %', sqlerrm;
        v_lost := true;
    end;
    begin
        perform postrider._count_attempts(v_now, v_moved, seqs, endpoint_ids, http_statuses, durations_ms);
    exception when others then
        raise warning 'postrider: statistics could not be written: %', sqlerrm;
        v_lost := true;
    end;

    v_walked := postrider._walked('pending_due');
    select array_agg(r.endpoint_id), array_agg(postrider._earliest_due(r.endpoint_id)) into v_ids, v_due_at
      from (select distinct u.endpoint_id from unnest(_report_attempts.endpoint_ids) u (endpoint_id)) r;
    perform postrider._raise_low_due(v_ids, v_due_at, v_now, postrider._walked('pending_due') - v_walked);

    return query
        select s.endpoint_id, s.owner is not distinct from _report_attempts.worker, s.disabled_at is not null,
               coalesce(postrider._ms_until(postrider._not_before(s.rate_limited_until, s.ladder_paused_until,
                                                                  s.paused_until, s.lapsed_until), v_now), 0),
               s.rung > 0 and s.failures > 0,
               postrider._ms_until(v_due_at[array_position(v_ids, s.endpoint_id)], v_now),
               v_lost, s.endpoint_id = any (v_undone_at)
          from postrider.endpoint_state s
         where s.endpoint_id = any (_report_attempts.endpoint_ids);
end
$$;
comment on function postrider._report_attempts(uuid, bigint[], uuid[], bigint[], integer[], integer[], bigint[], integer[], integer[], text[], text[], bigint[], text[], boolean) is
    'What report_attempts does; patient: it waits for endpoints that another call of the engine holds.';

create or replace function postrider.report_attempts(
    worker uuid, seqs bigint[], event_ids uuid[], endpoint_ids bigint[], runs integer[], numbers integer[],
    ended_ago_ms bigint[], durations_ms integer[], http_statuses integer[], error_codes text[], errors text[],
    waits_ms bigint[], answers text[]
)
returns table (endpoint_id bigint, owned boolean, stopped boolean, paused_ms bigint, probing boolean,
               next_due_ms bigint, history_lost boolean, held boolean)
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    -- As in fan_out: one sub-transaction for all of it.
    begin
        return query
            select r.endpoint_id, r.owned, r.stopped, r.paused_ms, r.probing, r.next_due_ms, r.history_lost, r.held
              from postrider._report_attempts(worker, seqs, event_ids, endpoint_ids, runs, numbers, ended_ago_ms, durations_ms,
                                              http_statuses, error_codes, errors, waits_ms, answers, true) r;
        return;
    exception
        when lock_not_available or deadlock_detected then
            null;
        -- A delivery ended otherwise: it is in `finished` already, or not in pending any more.
        when serialization_failure or unique_violation then
            null;
    end;
    return query
            select r.endpoint_id, r.owned, r.stopped, r.paused_ms, r.probing, r.next_due_ms, r.history_lost, r.held
              from postrider._report_attempts(worker, seqs, event_ids, endpoint_ids, runs, numbers, ended_ago_ms, durations_ms,
                                              http_statuses, error_codes, errors, waits_ms, answers, false) r;
end
$$;
comment on function postrider.report_attempts(uuid, bigint[], uuid[], bigint[], integer[], integer[], bigint[], integer[], integer[], text[], text[], bigint[], text[]) is
    'Settles a batch of attempts. Returns for each endpoint what its owner must now do: whether it still owns it, is stopped, paused for how long, probing (one request at a time), when the earliest delivery owed is due, whether history could not be written; held: report again all of this endpoint, since a transaction holds it or since a crash undid the making of a delivery.';
