-- Statistics by endpoint and hour: what they say is the sum of the rows. A report adds a row per endpoint, and maintain
-- makes one of them. A row updated by each report would, behind an old snapshot, leave a version per report, and every
-- later update walks them all. Locks: rows that only maintain deletes, under its advisory lock.

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
    insert into postrider.endpoint_stats (endpoint_id, hour, delivered, failed, rate_limited, latency)
    select r.endpoint_id, date_trunc('hour', at, 'UTC'),
           count(*) filter (where r.http_status between 200 and 299),
           count(*) filter (where r.http_status is null or r.http_status not between 200 and 299 and r.http_status <> 429),
           count(*) filter (where r.http_status = 429),
           postrider._latency_histogram(array_agg(r.duration_ms) filter (where r.http_status is not null))
      from unnest(seqs, endpoint_ids, http_statuses, durations_ms) r (seq, endpoint_id, http_status, duration_ms)
     where r.seq = any (moved)
     group by r.endpoint_id;
end
$$;
comment on function postrider._count_attempts(timestamptz, bigint[], bigint[], bigint[], integer[], integer[]) is
    'Adds the attempts that moved something to endpoint_stats.';

-- Precondition: the caller holds the maintain advisory lock, without which nobody deletes from endpoint_stats.
create or replace function postrider._sum_stats(max_rows integer) returns boolean
language plpgsql
set search_path to pg_catalog, pg_temp
set enable_seqscan to off
as $$
declare
    v_rows bigint;
begin
    with part as (
        delete from postrider.endpoint_stats s
         where (s.endpoint_id, s.hour) in (select u.endpoint_id, u.hour from postrider.endpoint_stats u
                                          where not u.summed limit _sum_stats.max_rows)
        returning s.*
    ), latency as (
        select x.endpoint_id, x.hour, array_agg(x.count order by x.bucket) as latency
          from (select p.endpoint_id, p.hour, l.bucket, sum(l.count)::integer as count
                  from part p cross join unnest(p.latency) with ordinality l (count, bucket)
                 group by p.endpoint_id, p.hour, l.bucket) x
         group by x.endpoint_id, x.hour
    ), total as (
        select p.endpoint_id, p.hour, sum(p.delivered) as delivered, sum(p.failed) as failed,
               sum(p.rate_limited) as rate_limited, count(*) as rows
          from part p group by p.endpoint_id, p.hour
    ), added as (
        insert into postrider.endpoint_stats (endpoint_id, hour, summed, delivered, failed, rate_limited, latency)
        select t.endpoint_id, t.hour, true, t.delivered, t.failed, t.rate_limited,
               coalesce(l.latency, postrider._latency_histogram('{}'))
          from total t left join latency l using (endpoint_id, hour)
    )
    select coalesce(sum(t.rows), 0) into v_rows from total t;
    return v_rows >= _sum_stats.max_rows;
end
$$;
comment on function postrider._sum_stats(integer) is
    'Makes one row of the statistics of each endpoint and hour to which reports added some, looking at so many of those; whether there may be more.';
