-- Low keys of endpoints: where a scan of what is owed, in the order it is due, may begin, so that it does not walk
-- rows that died before and that an old snapshot, anywhere in the cluster, keeps. Locks: those of the caller.
--
-- They are exact: a key is raised under the lock of the endpoint's state, and whoever adds or postpones a delivery does
-- so under that lock and sets no due_at before its now. A key is never updated: rows are added, the last is read, and
-- what it replaced lies behind it, dead or not. In a column that is overwritten, every look would walk its old versions.
--
-- The keys of outbox and of the claim are hints of a session: see outbox_head.sql and claim.sql.

create or replace function postrider._walked(index_name text) returns bigint
language plpgsql volatile
set search_path to pg_catalog, pg_temp
as $$ begin return coalesce(pg_stat_get_xact_tuples_returned(to_regclass('postrider.' || index_name)), 0); end $$;
comment on function postrider._walked(text) is
    'How many entries of an index this session has walked, dead ones included: the difference of two calls in one transaction means something. 0 where track_counts is off, which leaves low keys unused.';

-- Where planned while pending was empty, and with indexes of unequal height, walking all of the primary key and
-- sorting looks as cheap as reading one entry in order, and the plan is kept.
create or replace function postrider._earliest_due(endpoint_id bigint) returns timestamptz
language plpgsql stable
set search_path to pg_catalog, pg_temp
set plan_cache_mode to force_generic_plan
set enable_seqscan to off
set enable_sort to off
as $$
begin
    return (select p.due_at from postrider.pending p
             where p.endpoint_id = _earliest_due.endpoint_id
               and p.due_at >= coalesce((select k.low_due_at from postrider.low_keys k
                                          where k.endpoint_id = _earliest_due.endpoint_id
                                          order by k.low_due_at desc limit 1), '-infinity')
             order by p.due_at limit 1);
end
$$;
comment on function postrider._earliest_due(bigint) is
    'When the earliest delivery owed by an endpoint is due; null: nothing is owed.';

-- Precondition: as for _mark.
create or replace function postrider._raise_low_due(endpoint_ids bigint[], due_at timestamptz[], at timestamptz, walked bigint)
returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    -- A raised key costs as much as a walk of some hundred rows.
    if _raise_low_due.walked <= greatest(200, 100 * cardinality(_raise_low_due.endpoint_ids)) then
        return;
    end if;
    with raised as (
        select u.endpoint_id, least(u.due_at, _raise_low_due.at) as low_due_at, w.was
          from unnest(_raise_low_due.endpoint_ids, _raise_low_due.due_at) u (endpoint_id, due_at)
         cross join lateral (select (select k.low_due_at from postrider.low_keys k where k.endpoint_id = u.endpoint_id
                                      order by k.low_due_at desc limit 1) as was offset 0) w
         where w.was is null or w.was < least(u.due_at, _raise_low_due.at)
    ), added as (
        insert into postrider.low_keys (endpoint_id, low_due_at) select r.endpoint_id, r.low_due_at from raised r
    )
    -- By its whole key: a scan of the endpoint's would walk all dead ones.
    delete from postrider.low_keys k using raised r where k.endpoint_id = r.endpoint_id and k.low_due_at = r.was;
end
$$;
comment on function postrider._raise_low_due(bigint[], timestamptz[], timestamptz, bigint) is
    'Raises the low keys of these endpoints to their earliest delivery owed, no further than to a time before which none is added, if finding it walked many rows. The caller holds the rows'' locks from an earlier statement.';

-- Precondition: as for _mark.
create or replace function postrider._lower_low_due(endpoint_ids bigint[], at timestamptz) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    with ahead as (
        delete from postrider.low_keys k
         where k.endpoint_id = any (_lower_low_due.endpoint_ids) and k.low_due_at > _lower_low_due.at
        returning k.endpoint_id
    )
    insert into postrider.low_keys (endpoint_id, low_due_at)
    select distinct a.endpoint_id, _lower_low_due.at from ahead a
    on conflict do nothing;
end
$$;
comment on function postrider._lower_low_due(bigint[], timestamptz) is
    'Lowers low keys that lie ahead of a clock that was set back, before something is added: it would be due too late. The caller holds the rows'' locks from an earlier statement.';
