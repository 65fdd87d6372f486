-- delete_endpoint: deleting marks. It costs the same whatever the backlog: what is still owed is ended as
-- cancelled by maintain, a batch at a time.
--
-- Locks: the endpoint and its state. fan_out holds the state's lock while it adds a delivery and reads
-- deleted_at after it, so nothing is added afterwards. Stopped like a disabled one, so that neither a mark
-- nor a claim brings it back; the owner is told, starts nothing more and gives it up.

create or replace function postrider.delete_endpoint(endpoint_id bigint) returns void
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
begin
    perform postrider._require_read_committed();
    perform postrider._lock_endpoint(delete_endpoint.endpoint_id);
    v_now := postrider.now();
    -- First, so that stopping it raises no alert.
    update postrider.endpoints n set deleted_at = v_now, updated_at = v_now where n.id = delete_endpoint.endpoint_id;
    update postrider.endpoint_state s
       set disabled_at = coalesce(s.disabled_at, v_now), next_claim_at = null, reason = 'deleted'
     where s.endpoint_id = delete_endpoint.endpoint_id;
    delete from postrider.subscriptions s where s.endpoint_id = delete_endpoint.endpoint_id;
    -- They sign nothing more; maintain removes them a day later.
    update postrider.endpoint_secrets s set expires_at = v_now
     where s.endpoint_id = delete_endpoint.endpoint_id and (s.expires_at is null or s.expires_at > v_now);
    update postrider.alerts a set dismissed_at = v_now
     where a.endpoint_id = delete_endpoint.endpoint_id and a.dismissed_at is null;
    perform postrider._wake_for(delete_endpoint.endpoint_id);
end
$$;
comment on function postrider.delete_endpoint(bigint) is
    'Deletes an endpoint: nothing more is sent to it, what it was owed ends as cancelled, its history stays readable. Its URL may be used again at once.';
