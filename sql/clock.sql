-- The one clock of the SQL side. Stable, so that `due_at <= postrider.now()` can use an index; functions
-- that wait for locks read it into a variable after the last lock. Tests replace this function.

create or replace function postrider.now() returns timestamptz
language sql stable parallel safe
set search_path to pg_catalog, pg_temp
as $$ select pg_catalog.clock_timestamp() $$;
comment on function postrider.now() is
    'The clock every decision reads.';
