-- emit_event: one row in events and one in outbox, in the caller's transaction. Nothing else.
--
-- Locks: none that anyone else waits for, and it waits for nobody, one emitter with the same idempotency
-- key excepted (the unique index makes the second wait until the first commits or rolls back). It reads
-- endpoints and settings with plain reads. It works at every isolation level; under repeatable read a
-- clash of keys with a transaction it cannot see raises 40001, which ON CONFLICT does by itself.

-- What follows up to emit_event has no `set` clause, which would cost it more than its work: whoever calls it
-- has pinned the search path.
create or replace function postrider._is_json(body text) returns boolean
language plpgsql immutable parallel safe strict
as $$
begin
    perform body::pg_catalog.json;
    return true;
exception when others then
    return false;
end
$$;
comment on function postrider._is_json(text) is
    'Whether a text is one JSON value.';

create or replace function postrider._refuse_emit(
    event_type text, body text, tenant text, idempotency_key text, deliver_at timestamptz,
    max_payload_bytes integer, retention interval
) returns void
language plpgsql
as $$
begin
    if event_type is null or not postrider._is_event_type(event_type) then
        perform postrider._fail('PR001', format('invalid event type %L', left(event_type, 200)),
            'Use dot-separated parts of letters, digits, "_" and "-", at most 128 characters, such as invoice.paid.');
    end if;
    if octet_length(body) > max_payload_bytes then
        perform postrider._fail('PR003', format('payload of %s bytes is over the limit of %s bytes', octet_length(body), max_payload_bytes),
            'Send a reference instead of the data, or raise postrider.settings.max_payload_bytes.');
    end if;
    if coalesce(tenant, '') = '' or length(tenant) > 200 then
        perform postrider._fail('PR006', format('invalid tenant %L', left(tenant, 200)),
            'A tenant is a text of 1 to 200 characters; leave it out for the default tenant.');
    end if;
    if idempotency_key = '' or octet_length(idempotency_key) > 500 then
        perform postrider._fail('PR006', 'invalid idempotency key',
            'An idempotency key has 1 to 500 bytes; null means none.');
    end if;
    perform postrider._fail('PR005', format('deliver_at %s is too far ahead', deliver_at),
        format('Events are kept for %s (postrider.settings.retention); deliver_at must be within that.', retention));
end
$$;
comment on function postrider._refuse_emit(text, text, text, text, timestamptz, integer, interval) is
    'Says which of its conditions an emit does not meet.';

create or replace function postrider._emit(
    event_type text, body text, tenant text, idempotency_key text, deliver_at timestamptz, endpoint_id bigint
) returns uuid
language plpgsql
as $$
#variable_conflict use_column
declare
    v_now constant timestamptz := postrider.now();
    v_id constant uuid := postrider._uuid_v7(v_now);
    v_max_payload_bytes integer;
    v_retention interval;
    v_notify boolean;
    v_known uuid;
begin
    select s.max_payload_bytes, s.retention, s.notify into v_max_payload_bytes, v_retention, v_notify from postrider.settings s;
    -- One expression: each is prepared anew in every transaction.
    if (postrider._is_event_type(_emit.event_type)
        and octet_length(_emit.body) <= v_max_payload_bytes
        and _emit.tenant <> '' and length(_emit.tenant) <= 200
        and (_emit.idempotency_key is null or octet_length(_emit.idempotency_key) between 1 and 500)
        and (_emit.deliver_at is null or (isfinite(_emit.deliver_at) and _emit.deliver_at <= v_now + v_retention)))
       is not true
    then
        perform postrider._refuse_emit(_emit.event_type, _emit.body, _emit.tenant, _emit.idempotency_key, _emit.deliver_at,
                                       v_max_payload_bytes, v_retention);
    end if;
    if _emit.endpoint_id is not null then  -- Apart: a condition that reads a table is a statement of its own.
        if not exists (
            select from postrider.endpoints e
             where e.id = _emit.endpoint_id and e.tenant = _emit.tenant and e.deleted_at is null)
        then
            perform postrider._fail('PR004', format('no endpoint %s in tenant %L', _emit.endpoint_id, _emit.tenant),
                'Name a live endpoint of this tenant, or leave endpoint_id out to send to all subscribers.');
        end if;
    end if;

    while _emit.idempotency_key is not null loop
        insert into postrider.idempotency_keys (tenant, key, event_id)
        values (_emit.tenant, _emit.idempotency_key, v_id)
        on conflict (tenant, key) do nothing;
        exit when found;
        -- A new statement: under read committed it sees what the first insert waited for.
        select k.event_id into v_known from postrider.idempotency_keys k
         where k.tenant = _emit.tenant and k.key = _emit.idempotency_key;
        if found then
            return v_known;
        end if;
        -- The key went with its event past retention, between the two statements; ours to take.
    end loop;

    if not v_notify then
        -- The trigger runs as whoever emits, who may not read the settings; and where constraints are immediate, at
        -- the end of the insert into outbox.
        perform set_config('postrider.notify', 'off', true);
    end if;
    insert into postrider.events (id, tenant, event_type, body, endpoint_id, deliver_at, created_at)
    values (v_id, _emit.tenant, _emit.event_type, _emit.body, _emit.endpoint_id, _emit.deliver_at, v_now);
    insert into postrider.outbox (event_id) values (v_id);
    return v_id;
end
$$;
comment on function postrider._emit(text, text, text, text, timestamptz, bigint) is
    'What the three overloads of emit_event share; the body is JSON already.';

create or replace function postrider.emit_event(
    event_type text, payload text, tenant text default 'default', idempotency_key text default null,
    deliver_at timestamptz default null, endpoint_id bigint default null
) returns uuid
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
begin
    if payload is null or not postrider._is_json(payload) then
        perform postrider._fail('PR002', 'payload is not JSON',
            'Pass one JSON value as text, json or jsonb; text is sent byte for byte as given.');
    end if;
    return postrider._emit(event_type, payload, tenant, idempotency_key, deliver_at, endpoint_id);
end
$$;
comment on function postrider.emit_event(text, text, text, text, timestamptz, bigint) is
    'Emits an event in the caller''s transaction; the text is kept and sent byte for byte. Returns the event''s id, which is the Webhook-Id.';

create or replace function postrider.emit_event(
    event_type text, payload json, tenant text default 'default', idempotency_key text default null,
    deliver_at timestamptz default null, endpoint_id bigint default null
) returns uuid
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
begin
    if payload is null then
        perform postrider._fail('PR002', 'payload is null', 'Pass a JSON value; JSON null is written ''null''.');
    end if;
    return postrider._emit(event_type, payload::text, tenant, idempotency_key, deliver_at, endpoint_id);
end
$$;
comment on function postrider.emit_event(text, json, text, text, timestamptz, bigint) is
    'Emits an event in the caller''s transaction; json keeps its text byte for byte.';

create or replace function postrider.emit_event(
    event_type text, payload jsonb, tenant text default 'default', idempotency_key text default null,
    deliver_at timestamptz default null, endpoint_id bigint default null
) returns uuid
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
begin
    if payload is null then
        perform postrider._fail('PR002', 'payload is null', 'Pass a JSON value; JSON null is written ''null''.');
    end if;
    return postrider._emit(event_type, payload::text, tenant, idempotency_key, deliver_at, endpoint_id);
end
$$;
comment on function postrider.emit_event(text, jsonb, text, text, timestamptz, bigint) is
    'Emits an event in the caller''s transaction; sent as Postgres writes the jsonb.';
