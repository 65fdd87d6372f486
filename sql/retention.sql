-- Retention: a day is emptied by TRUNCATE of its leaves, after locking them and then, in a new statement,
-- looking for what is still owed. fan_out and replay read the event in the transaction that writes pending, so
-- they hold a lock on its leaf until they commit: either we see their rows, or they find no event.

create or replace function postrider._leaf_days() returns setof date
language sql stable
set search_path to pg_catalog, pg_temp
as $$
    select distinct to_date(right(c.relname, 8), 'YYYYMMDD')
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent in ('postrider.events'::regclass, 'postrider.finished'::regclass, 'postrider.attempts'::regclass)
       and c.relname ~ '_[0-9]{8}$'
$$;
comment on function postrider._leaf_days() is
    'The days that have leaves.';

create or replace function postrider._is_empty(leaf text) returns boolean
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_found boolean;
begin
    if to_regclass(format('postrider.%I', leaf)) is null then
        return false;
    end if;
    execute format('select exists (select from only postrider.%I)', leaf) into v_found;
    return not v_found;
end
$$;
comment on function postrider._is_empty(text) is
    'Whether a leaf exists and holds no row.';

create or replace function postrider._empty_day(day date) returns text
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_low constant uuid := postrider._uuid_floor(day::timestamp at time zone 'UTC');
    v_high constant uuid := postrider._uuid_floor((day + 1)::timestamp at time zone 'UTC');
    v_leaf text;
    v_leaves text[] := '{}';
begin
    -- A first look without any lock, so that a day with old debts costs nobody a lock every minute.
    if postrider._is_owed(v_low, v_high) then
        return 'owed';
    end if;
    foreach v_leaf in array array['events', 'finished', 'attempts'] loop
        v_leaf := postrider._leaf(v_leaf, day);
        continue when to_regclass(format('postrider.%I', v_leaf)) is null;
        if not postrider._is_empty(v_leaf) then
            v_leaves := v_leaves || format('postrider.%I', v_leaf);
        end if;
    end loop;
    if cardinality(v_leaves) = 0 then
        return 'empty';
    end if;
    foreach v_leaf in array v_leaves loop
        execute format('lock table only %s in access exclusive mode', v_leaf);
    end loop;
    if postrider._is_owed(v_low, v_high) then
        return 'owed';
    end if;
    execute format('truncate only %s', array_to_string(v_leaves, ', only '));
    return 'emptied';
end
$$;
comment on function postrider._empty_day(date) is
    'Truncates the leaves of a day unless something of it is still owed: emptied, owed, or empty already.';

create or replace function postrider._is_owed(low uuid, high uuid) returns boolean
language sql volatile
set search_path to pg_catalog, pg_temp
as $$
    select exists (select from postrider.pending p where p.event_id >= low and p.event_id < high)
        or exists (select from postrider.outbox o where o.event_id >= low and o.event_id < high)
        or exists (select from postrider.deferred d where d.event_id >= low and d.event_id < high)
$$;
comment on function postrider._is_owed(uuid, uuid) is
    'Whether a delivery or an unfanned event with an id in this range is still owed.';

create or replace function postrider._move_strays(first_day date, last_day date) returns bigint
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_parent text;
    v_key text;
    v_day date;
    v_days date[];
    v_low uuid;
    v_high uuid;
    v_count bigint;
    v_total bigint := 0;
begin
    foreach v_parent in array array['events', 'finished', 'attempts'] loop
        v_key := case v_parent when 'events' then 'id' else 'event_id' end;
        execute format('select array_agg(distinct (postrider._uuid_time(%I) at time zone ''UTC'')::date) from postrider.%I',
                       v_key, v_parent || '_default') into v_days;
        foreach v_day in array coalesce(v_days, '{}') loop
            continue when v_day < first_day or v_day > last_day;
            v_low := postrider._uuid_floor(v_day::timestamp at time zone 'UTC');
            v_high := postrider._uuid_floor((v_day + 1)::timestamp at time zone 'UTC');
            -- Attaching refuses while the default partition holds rows of the day: lock it, move them, attach. An
            -- insert that waits for the default partition would be refused by it once the leaf is there (23514), so
            -- it is made to wait for the parent instead, before it chooses.
            execute format('lock table only postrider.%I in share row exclusive mode', v_parent);
            execute format('lock table only postrider.%I in access exclusive mode', v_parent || '_default');
            execute format('create table postrider.%I (like postrider.%I including all)',
                           postrider._leaf(v_parent, v_day), v_parent);
            execute format('comment on table postrider.%I is %L', postrider._leaf(v_parent, v_day),
                           format('Leaf of %s: ids made on %s (UTC).', v_parent, v_day));
            execute format('with moved as (delete from only postrider.%1$I d where d.%2$I >= %3$L and d.%2$I < %4$L returning d.*)
                            insert into postrider.%5$I select m.* from moved m',
                           v_parent || '_default', v_key, v_low, v_high, postrider._leaf(v_parent, v_day));
            get diagnostics v_count = row_count;
            v_total := v_total + v_count;
            execute format('alter table postrider.%I attach partition postrider.%I for values from (%L) to (%L)',
                           v_parent, postrider._leaf(v_parent, v_day), v_low, v_high);
        end loop;
    end loop;
    return v_total;
end
$$;
comment on function postrider._move_strays(date, date) is
    'Moves rows of the default partitions into leaves of their own day. Returns how many rows.';
