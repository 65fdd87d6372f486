-- The wake-up: a deferred constraint trigger on outbox sends at most one NOTIFY per transaction, at COMMIT.
--
-- A transaction with a pending NOTIFY holds an instance-wide lock through its commit, so all committing
-- emitters but one leave it out: the gate is a transaction-level advisory lock, taken by try only. Whoever
-- did not get it may commit a moment later than the notification; workers that were notified look again
-- after 10, 20, 40 … ms. SECURITY DEFINER, because a deferred trigger runs as the session's user.
--
-- Advisory lock (1886352244, 1): the notify gate. (1886352244, 2): fan_out. (1886352244, 3): maintain.

create or replace function postrider._notify_workers() returns trigger
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
begin
    -- The switch comes before the gate: a prepared transaction would hold the gate until it ends. And it is
    -- read as text: after `set local` a session keeps '', which no boolean cast survives.
    if coalesce(current_setting('postrider.notify', true), '') = 'off' then
        return null;
    end if;
    if not (select s.notify from postrider.settings s) then
        return null;
    end if;
    if pg_try_advisory_xact_lock(1886352244, 1) then
        perform pg_notify('postrider', '');
    end if;
    return null;
end
$$;
comment on function postrider._notify_workers() is
    'Trigger of outbox: wakes the workers at COMMIT, at most one notification per transaction.';

do $$
begin
    if not exists (select from pg_catalog.pg_trigger
                    where tgrelid = 'postrider.outbox'::pg_catalog.regclass and tgname = 'notify_workers') then
        create constraint trigger notify_workers after insert on postrider.outbox
            deferrable initially deferred
            for each row execute function postrider._notify_workers();
    end if;
end
$$;
