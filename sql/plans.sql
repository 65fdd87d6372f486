-- How the engine's statements are planned. Locks: none.
--
-- Planning afresh costs a call of a few rows several times what running it does; a plan kept from when a table was
-- empty can read all of it once it is full. So small calls keep plans that can only be nested loops over index
-- reads, right at every size of a table, and large ones, whose joins between their own rows want hashing, are planned
-- for what they hold. Events are read through _events(), which is always planned for its range of ids: a kept plan
-- would lock every leaf.

create or replace function postrider._plan_for(rows integer) returns void
language plpgsql
as $$
declare
    v_small constant boolean := rows <= 50;
    v_many constant text := case when v_small then 'off' else 'on' end;
begin
    perform pg_catalog.set_config('plan_cache_mode', case when v_small then 'force_generic_plan' else 'force_custom_plan' end, true),
            pg_catalog.set_config('enable_seqscan', v_many, true),
            pg_catalog.set_config('enable_hashjoin', v_many, true),
            pg_catalog.set_config('enable_mergejoin', v_many, true),
            -- A plan that must read a table in sequence after all has a penalty in its cost that would compile it.
            pg_catalog.set_config('jit', 'off', true);
end
$$;
comment on function postrider._plan_for(integer) is
    'For the rest of the transaction: statements are planned for calls of so many rows.';

create or replace function postrider._events(ids uuid[])
returns table (id uuid, tenant text, event_type text, endpoint_id bigint, deliver_at timestamptz, created_at timestamptz)
language plpgsql stable
set search_path to pg_catalog, pg_temp
set plan_cache_mode to force_custom_plan
set enable_seqscan to off
as $$
#variable_conflict use_column
declare
    v_low uuid;
    v_high uuid;
begin
    select min(u.id::text collate "C")::uuid, max(u.id::text collate "C")::uuid into v_low, v_high from unnest(_events.ids) u (id);
    return query
        select e.*
          from (select distinct u.id from unnest(_events.ids) u (id)) d
         -- Row by row: a scan of what lies between looks cheap where it is newer than the statistics, or holds one old id.
         cross join lateral (select x.id, x.tenant, x.event_type, x.endpoint_id, x.deliver_at, x.created_at
                               from postrider.events x
                              where x.id = d.id and x.id between v_low and v_high offset 0) e;
end
$$;
comment on function postrider._events(uuid[]) is
    'These events. The bounds on the id keep the plan off all other leaves.';
