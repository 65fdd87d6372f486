-- The one clock of the SQL side. Stable, so that `due_at <= postrider.now()` can use an index; functions
-- that wait for locks read it into a variable after the last lock. Tests replace this function.

create or replace function postrider.now() returns timestamptz
language plpgsql stable parallel safe
as $$ begin return pg_catalog.clock_timestamp(); end $$;
comment on function postrider.now() is
    'The clock every decision reads.';

-- These two and the like are inlined into their callers: no `set` clause, not strict, and no more volatile than declared.
create or replace function postrider._ms(duration interval) returns bigint
language sql immutable parallel safe
as $$
    select case when duration is not null then greatest(pg_catalog.ceil(extract(epoch from duration) * 1000), 0)::bigint end
$$;
comment on function postrider._ms(interval) is
    'Milliseconds, rounded up, not negative: how durations cross to the workers.';

create or replace function postrider._ms_until(at timestamptz, now timestamptz) returns bigint
language sql immutable parallel safe
as $$
    -- A pause may last until infinity, which cannot be subtracted from; ten years will do.
    select case when at is null then null when at <= now then 0 when at = 'infinity' then 315576000000
                else least(pg_catalog.ceil(extract(epoch from at - now) * 1000), 315576000000)::bigint end
$$;
comment on function postrider._ms_until(timestamptz, timestamptz) is
    'Milliseconds from now until a time, rounded up, not negative.';
