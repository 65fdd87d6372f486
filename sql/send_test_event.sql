-- send_test_event: an event for one endpoint, whatever it is subscribed to.
--
-- Locks: those of emit_event, which are none that anyone waits for.

create or replace function postrider.send_test_event(
    endpoint_id bigint, event_type text default 'postrider.test', payload jsonb default '{}'
) returns uuid
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_tenant text;
begin
    perform postrider._require_read_committed();
    select n.tenant into v_tenant
      from postrider.endpoints n where n.id = send_test_event.endpoint_id and n.deleted_at is null;
    if not found then
        perform postrider._fail('PR004', format('there is no endpoint %s', coalesce(send_test_event.endpoint_id::text, 'null')),
            'It was never created, or it was deleted; postrider.endpoint_health lists the endpoints there are.');
    end if;
    return postrider.emit_event(send_test_event.event_type, send_test_event.payload, tenant => v_tenant,
                                endpoint_id => send_test_event.endpoint_id);
end
$$;
comment on function postrider.send_test_event(bigint, text, jsonb) is
    'Sends an event to one endpoint, through everything a real one goes through. Returns its id; postrider.deliveries shows what became of it.';
