-- The wake-up: a deferred constraint trigger on outbox sends at most one NOTIFY per transaction, at COMMIT.
--
-- A transaction with a pending NOTIFY holds an instance-wide lock through its commit, so all committing
-- emitters but one leave it out: the gate is a transaction-level advisory lock, taken by try only. Whoever
-- did not get it may commit a moment later than the notification; workers that were notified look again
-- after 10, 20, 40 … ms. The trigger runs as the session's user, who needs no right for it, and in a path that is
-- the session's, so every name is qualified; as SECURITY DEFINER it cost a commit a tenth more.
--
-- Advisory lock (1886352244, 1): the notify gate. (1886352244, 2): fan_out. (1886352244, 3): maintain.

create or replace function postrider._notify_workers() returns trigger
language plpgsql
as $$
begin
    -- The switch comes before the gate: a prepared transaction would hold the gate until it ends. And it is
    -- read as text: after `set local` a session keeps '', which no boolean cast survives.
    if coalesce(pg_catalog.current_setting('postrider.notify', true), '') operator(pg_catalog.<>) 'off' then
        if pg_catalog.pg_try_advisory_xact_lock(1886352244, 1) then
            perform pg_catalog.pg_notify('postrider', '');
        end if;
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
