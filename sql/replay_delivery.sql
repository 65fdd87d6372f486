-- replay_delivery: sends an ended delivery once more, as a new run with the same Webhook-Id.
--
-- Locks: the endpoint and its state, then the delivery is looked for in later statements. The event is read
-- in the same transaction: that read's lock on the leaf keeps retention's TRUNCATE away until we commit.
-- Ids are looked up with plans made for them, since a generic plan locks every leaf.

create or replace function postrider.replay_delivery(event_id uuid, endpoint_id bigint) returns void
language plpgsql security definer
set search_path to pg_catalog, pg_temp
set plan_cache_mode to force_custom_plan
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
    v_run integer;
begin
    perform postrider._require_read_committed();
    perform postrider._lock_endpoint(replay_delivery.endpoint_id);
    v_now := postrider.now();
    perform from postrider.events e where e.id = replay_delivery.event_id;
    if not found then
        perform postrider._fail('PR019', format('there is no event %s', coalesce(replay_delivery.event_id::text, 'null')),
            'It was never committed, or it is past retention (postrider.settings.retention).');
    end if;
    if exists (select from postrider.pending p
                where p.event_id = replay_delivery.event_id and p.endpoint_id = replay_delivery.endpoint_id) then
        perform postrider._fail('PR019', format('the delivery of event %s to endpoint %s has not ended',
                                                replay_delivery.event_id, replay_delivery.endpoint_id),
            'It is retried by itself; only an ended delivery can be replayed.');
    end if;
    select f.run into v_run from postrider.finished f
     where f.event_id = replay_delivery.event_id and f.endpoint_id = replay_delivery.endpoint_id
     order by f.run desc limit 1;
    if not found then
        perform postrider._fail('PR019', format('there is no delivery of event %s to endpoint %s',
                                                replay_delivery.event_id, replay_delivery.endpoint_id),
            'The event is not fanned out yet, or the endpoint was not subscribed to it then.');
    end if;
    perform postrider._lower_low_due(array[replay_delivery.endpoint_id], v_now);
    insert into postrider.pending (event_id, endpoint_id, run, due_at, expires_at)
    select replay_delivery.event_id, replay_delivery.endpoint_id, v_run + 1, v_now, v_now + p.time_to_live
      from postrider.endpoints n
      join postrider.policies p on p.name = n.policy
     where n.id = replay_delivery.endpoint_id;
    perform postrider._mark(array[replay_delivery.endpoint_id]);
    perform postrider._wake_for(replay_delivery.endpoint_id);
end
$$;
comment on function postrider.replay_delivery(uuid, bigint) is
    'Sends an ended delivery once more, due now, with the same Webhook-Id and bytes and a new time to live.';
