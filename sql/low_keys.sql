-- Low keys: where a scan in key order may begin, so that it does not walk rows that died before and that an old
-- snapshot, anywhere in the cluster, keeps. Locks: none, or those of the caller.
--
-- Two kinds. `endpoint_state.low_due_at` is exact: it is raised under the endpoint's lock, and whoever adds or
-- postpones a delivery does so under that lock and sets no due_at below it. That of `outbox` is a hint: an event that
-- becomes visible late lies below it, so it is used for some seconds at most, and then the scan is from the beginning
-- again. It lives in a setting of the session, since a row that is written so often would itself fill with dead rows.
--
-- The claim has none: a mark may lie far in the past when it appears (an endpoint given up with old deliveries), and
-- its index holds one entry an endpoint and change, not one a delivery.

create or replace function postrider._walked(index_name text) returns bigint
language sql volatile
as $$
    select coalesce(pg_catalog.pg_stat_get_xact_tuples_returned(pg_catalog.to_regclass('postrider.' || index_name)), 0)
$$;
comment on function postrider._walked(text) is
    'How many entries of an index this session has walked, dead ones included: the difference of two calls in one transaction means something. 0 where track_counts is off, which leaves low keys unused.';

create or replace function postrider._outbox_low_key() returns uuid
language sql volatile
as $$
    -- The upper bound: the clock may have been set back meanwhile.
    select case when k.kept[1]::numeric - extract(epoch from pg_catalog.clock_timestamp()) between 0 and 5 then k.kept[2]::uuid end
      from (select pg_catalog.string_to_array(
                       nullif(pg_catalog.current_setting('postrider.low_outbox', true), ''), '|')) k (kept)
$$;
comment on function postrider._outbox_low_key() is
    'Where this session may begin to scan outbox; null: at the beginning.';

create or replace function postrider._keep_outbox_low_key(was uuid, low uuid, walked bigint, began timestamptz)
returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_name constant text := 'postrider.low_outbox';
    v_kept constant text := coalesce(current_setting(v_name, true), '');
    v_now constant timestamptz := clock_timestamp();
begin
    if was is not null and was <= postrider._uuid_floor(postrider.now()) then
        -- Where something became visible below it, the key follows; walking up to there again costs nothing more.
        perform set_config(v_name, split_part(v_kept, '|', 1) || '|' || low, false);
    elsif was is null and walked > 1000 then
        -- From the beginning so seldom that it takes a twentieth of the time, but every five seconds.
        perform set_config(v_name, format('%s|%s', extract(epoch from v_now + least(greatest((v_now - began) * 20, '1 s'), '5 s')), low), false);
    elsif v_kept <> '' then
        -- Also where the clock went back: what is emitted now lies below the key.
        perform set_config(v_name, '', false);
    end if;
end
$$;
comment on function postrider._keep_outbox_low_key(uuid, uuid, bigint, timestamptz) is
    'After a scan of outbox that began at `was`: keeps the lowest key it left, if walking from the beginning costs something.';

-- In the order of the index, or not at all: without statistics, reading all of outbox and sorting looks cheaper.
-- Bitmap scans would never mark dead entries as such, either.
create or replace function postrider._outbox_head(low uuid, count integer) returns uuid[]
language plpgsql stable
set search_path to pg_catalog, pg_temp
set plan_cache_mode to force_generic_plan
set enable_seqscan to off
set enable_bitmapscan to off
set enable_sort to off
as $$
begin
    return array(select o.event_id from postrider.outbox o
                  where o.after_endpoint is null
                    and o.event_id >= coalesce(_outbox_head.low, '00000000-0000-0000-0000-000000000000')
                  order by o.event_id limit _outbox_head.count);
end
$$;
comment on function postrider._outbox_head(uuid, integer) is
    'The oldest events not fanned out, large ones under way aside, from a low key on.';

-- Where planned while pending was empty, and with indexes of unequal height, walking all of the primary key and
-- sorting looks as cheap as reading one entry in order, and the plan is kept.
create or replace function postrider._earliest_due(endpoint_id bigint, low_due_at timestamptz) returns timestamptz
language plpgsql stable
set search_path to pg_catalog, pg_temp
set plan_cache_mode to force_generic_plan
set enable_seqscan to off
set enable_sort to off
as $$
begin
    return (select p.due_at from postrider.pending p
             where p.endpoint_id = _earliest_due.endpoint_id
               and p.due_at >= coalesce(_earliest_due.low_due_at, '-infinity')
             order by p.due_at limit 1);
end
$$;
comment on function postrider._earliest_due(bigint, timestamptz) is
    'When the earliest delivery owed by an endpoint with this low key is due; null: nothing is owed.';

-- Precondition: as for _mark.
create or replace function postrider._raise_low_due(endpoint_ids bigint[], at timestamptz, walked bigint) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    -- Each write leaves one more dead version of the row that every call looks up: a few hundred rows walked
    -- cost less.
    if _raise_low_due.walked <= greatest(500, 100 * cardinality(_raise_low_due.endpoint_ids)) then
        return;
    end if;
    update postrider.endpoint_state s
       set low_due_at = m.low_due_at
      from (select x.endpoint_id,
                   greatest(x.low_due_at, least(postrider._earliest_due(x.endpoint_id, x.low_due_at),
                                                _raise_low_due.at)) as low_due_at
              from postrider.endpoint_state x
             where x.endpoint_id = any (_raise_low_due.endpoint_ids)) m
     where s.endpoint_id = m.endpoint_id and s.low_due_at is distinct from m.low_due_at;
end
$$;
comment on function postrider._raise_low_due(bigint[], timestamptz, bigint) is
    'Raises the low keys of these endpoints to their earliest delivery owed, no further than to a time before which none is added, if finding it walked many rows. The caller holds the rows'' locks from an earlier statement.';

-- Precondition: as for _mark.
create or replace function postrider._lower_low_due(endpoint_ids bigint[], at timestamptz) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    update postrider.endpoint_state s set low_due_at = _lower_low_due.at
     where s.endpoint_id = any (_lower_low_due.endpoint_ids) and s.low_due_at > _lower_low_due.at;
end
$$;
comment on function postrider._lower_low_due(bigint[], timestamptz) is
    'Lowers low keys that lie ahead of a clock that was set back, before something is added: it would be due too late. The caller holds the rows'' locks from an earlier statement.';
