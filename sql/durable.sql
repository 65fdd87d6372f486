-- Which commits wait for the disk. Locks: none.

-- A commit that grants something (a lease, a claim, a settled report) must survive a crash.
-- A `set` clause on the function would be undone before COMMIT, hence set_config for the transaction.
create or replace function postrider._require_durable_commit() returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
begin
    if pg_catalog.current_setting('synchronous_commit') in ('off', 'local') then
        perform pg_catalog.set_config('synchronous_commit', 'on', true);
    end if;
end
$$;
comment on function postrider._require_durable_commit() is
    'Raises a synchronous_commit of off or local to on for this transaction.';

-- fan_out grants nothing: what it wrote and a crash undid, it writes again from outbox. Its commit waits for the disk only
-- so that an event is on disk before it is sent, which its emitter may have left to later. Where all that anybody has
-- written so far is on disk, so is every commit that this transaction can have seen, and a report of what is then sent comes
-- after it in the log. A synchronous standby has not the same of its own accord; with one, nothing is relaxed. Nor where this
-- transaction has written already: that is its caller's.
create or replace function postrider._relax_durable_commit() returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
begin
    if pg_current_xact_id_if_assigned() is null
       and current_setting('synchronous_standby_names') = ''
       and pg_current_wal_insert_lsn() <= pg_current_wal_flush_lsn()
    then
        perform set_config('synchronous_commit', 'off', true);
    end if;
exception when feature_not_supported or insufficient_privilege then
    null;  -- Some servers with a storage of their own do not tell.
end
$$;
comment on function postrider._relax_durable_commit() is
    'Lets this transaction commit without waiting for the disk, if all that it can have seen is on disk.';
