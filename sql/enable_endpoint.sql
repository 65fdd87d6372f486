-- enable_endpoint: a person says that an endpoint is well again: its failure history is cleared, its alerts
-- are dismissed, and only requests begun from now on count on the ladder.
--
-- Locks: the endpoint and its state, then the mark is recomputed in a statement of its own; alerts last.

create or replace function postrider.enable_endpoint(endpoint_id bigint) returns void
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
begin
    perform postrider._require_read_committed();
    perform postrider._lock_endpoint(enable_endpoint.endpoint_id);
    v_now := postrider.now();
    update postrider.endpoint_state s
       set failures = 0, failing_since = null, rung = 0, ladder_paused_until = null, disabled_at = null,
           enabled_at = v_now, reason = case when s.paused_until > v_now then 'paused by a person' end
     where s.endpoint_id = enable_endpoint.endpoint_id
       and (s.disabled_at is not null or s.failures > 0 or s.rung > 0 or s.ladder_paused_until is not null);
    perform postrider._mark(array[enable_endpoint.endpoint_id]);
    update postrider.alerts a set dismissed_at = v_now
     where a.endpoint_id = enable_endpoint.endpoint_id and a.dismissed_at is null;
    perform postrider._wake_for(enable_endpoint.endpoint_id);
end
$$;
comment on function postrider.enable_endpoint(bigint) is
    'Enables a disabled endpoint: clears its failures and the ladder''s pause, and dismisses its alerts. A pause by a person or by a 429 goes on. What waited is sent at its pace, oldest first.';
