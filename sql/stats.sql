-- Statistics: a row per endpoint and hour, written at most once per endpoint and batch.

create or replace function postrider._latency_histogram(durations_ms integer[]) returns integer[]
language plpgsql immutable
set search_path to pg_catalog, pg_temp
as $$
declare
    v_histogram integer[] := array_fill(0, array[cardinality(postrider._latency_bounds()) + 1]);
    v_ms integer;
    v_bucket integer;
begin
    foreach v_ms in array coalesce(durations_ms, '{}') loop
        v_bucket := postrider._latency_bucket(v_ms);
        v_histogram[v_bucket] := v_histogram[v_bucket] + 1;
    end loop;
    return v_histogram;
end
$$;
comment on function postrider._latency_histogram(integer[]) is
    'How many of these durations fall in each bucket; the last bucket is above all bounds.';

create or replace function postrider._count_attempts(
    at timestamptz, moved bigint[], seqs bigint[], endpoint_ids bigint[], http_statuses integer[], durations_ms integer[]
) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    insert into postrider.endpoint_stats as x (endpoint_id, hour, delivered, failed, rate_limited, latency)
    select r.endpoint_id, date_trunc('hour', at, 'UTC'),
           count(*) filter (where r.http_status between 200 and 299),
           count(*) filter (where r.http_status is null or r.http_status not between 200 and 299 and r.http_status <> 429),
           count(*) filter (where r.http_status = 429),
           postrider._latency_histogram(array_agg(r.duration_ms) filter (where r.http_status is not null))
      from unnest(seqs, endpoint_ids, http_statuses, durations_ms) r (seq, endpoint_id, http_status, duration_ms)
     where r.seq = any (moved)
     group by r.endpoint_id
     order by r.endpoint_id
    on conflict (endpoint_id, hour) do update
       set delivered = x.delivered + excluded.delivered,
           failed = x.failed + excluded.failed,
           rate_limited = x.rate_limited + excluded.rate_limited,
           latency = array(select a + b from unnest(x.latency, excluded.latency) with ordinality u (a, b, n) order by n);
end
$$;
comment on function postrider._count_attempts(timestamptz, bigint[], bigint[], bigint[], integer[], integer[]) is
    'Adds the attempts that moved something to endpoint_stats.';
