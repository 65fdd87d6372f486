-- Errors. Every refusal has a SQLSTATE of class PR, a message that names what was wrong, and a hint.

create or replace function postrider._fail(code text, message text, hint text) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
begin
    raise exception using errcode = code, message = message, hint = hint;
end
$$;
comment on function postrider._fail(text, text, text) is
    'Raises an error of class PR with a hint.';

-- "Lock, then look" rests on each statement having its own snapshot, which only read committed gives.
create or replace function postrider._require_read_committed() returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
begin
    if pg_catalog.current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        perform postrider._fail('PR020',
            pg_catalog.format('this function refuses isolation level %s', pg_catalog.current_setting('transaction_isolation')),
            'Call it in a transaction that is read committed; only emit_event works at every level.');
    end if;
end
$$;
comment on function postrider._require_read_committed() is
    'Refuses any isolation level but read committed.';
