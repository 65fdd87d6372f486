-- The one clock of the SQL side. Stable, so that `due_at <= postrider.now()` can use an index; functions
-- that wait for locks read it into a variable after the last lock. Tests replace this function.

create or replace function postrider.now() returns timestamptz
language sql stable parallel safe
set search_path to pg_catalog, pg_temp
as $$ select pg_catalog.clock_timestamp() $$;
comment on function postrider.now() is
    'The clock every decision reads.';

-- These two and the like have no `set search_path`, so that they are inlined into their callers, which have.
create or replace function postrider._ms(duration interval) returns bigint
language sql immutable parallel safe strict
as $$ select greatest(pg_catalog.ceil(extract(epoch from duration) * 1000), 0)::bigint $$;
comment on function postrider._ms(interval) is
    'Milliseconds, rounded up, not negative: how durations cross to the workers.';

create or replace function postrider._ms_until(at timestamptz, now timestamptz) returns bigint
language sql immutable parallel safe strict
as $$
    -- A pause may last until infinity, which cannot be subtracted from; ten years will do.
    select postrider._ms(least(at, now + interval '10 years') - now)
$$;
comment on function postrider._ms_until(timestamptz, timestamptz) is
    'Milliseconds from now until a time, rounded up, not negative.';
