-- Leaves: one per day of the event's uuid v7, for events, finished and attempts.
--
-- `create table … partition of` would queue every emit behind one open emitter; `create table (like …)` and
-- `attach partition` do not. Attaching locks the default partition, which only a stray would hold.

create or replace function postrider._leaf(parent text, day date) returns text
language sql immutable parallel safe strict
set search_path to pg_catalog, pg_temp
as $$ select parent || '_' || to_char(day, 'YYYYMMDD') $$;
comment on function postrider._leaf(text, date) is
    'Name of the leaf of a partitioned table for a day (UTC).';

create or replace function postrider._make_leaves(first_day date, last_day date) returns integer
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_day date;
    v_parent text;
    v_made integer := 0;
begin
    for v_day in select d::date from generate_series(first_day::timestamp, last_day::timestamp, interval '1 day') d loop
        foreach v_parent in array array['events', 'finished', 'attempts'] loop
            continue when to_regclass(format('postrider.%I', postrider._leaf(v_parent, v_day))) is not null;
            execute format('create table postrider.%I (like postrider.%I including all)',
                           postrider._leaf(v_parent, v_day), v_parent);
            execute format('comment on table postrider.%I is %L', postrider._leaf(v_parent, v_day),
                           format('Leaf of %s: ids made on %s (UTC).', v_parent, v_day));
            execute format('alter table postrider.%I attach partition postrider.%I for values from (%L) to (%L)',
                           v_parent, postrider._leaf(v_parent, v_day),
                           postrider._uuid_floor(v_day::timestamp at time zone 'UTC'),
                           postrider._uuid_floor((v_day + 1)::timestamp at time zone 'UTC'));
            v_made := v_made + 1;
        end loop;
    end loop;
    return v_made;
end
$$;
comment on function postrider._make_leaves(date, date) is
    'Makes the leaves of these days that do not exist yet. Returns how many tables.';

-- An installation can be emitted to at once, before a worker has run maintain for the first time.
do $$
begin
    perform postrider._make_leaves((postrider.now() at time zone 'UTC')::date - 1, (postrider.now() at time zone 'UTC')::date + 30);
end
$$;
