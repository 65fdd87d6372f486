-- disable_endpoint: stops an endpoint until a person enables it. An alert says so.
--
-- Locks: the endpoint and its state.

create or replace function postrider.disable_endpoint(endpoint_id bigint, reason text default null) returns void
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
begin
    perform postrider._require_read_committed();
    perform postrider._lock_endpoint(disable_endpoint.endpoint_id);
    v_now := postrider.now();
    update postrider.endpoint_state s
       set disabled_at = coalesce(s.disabled_at, v_now), next_claim_at = null,
           reason = coalesce(disable_endpoint.reason, 'disabled by a person')
     where s.endpoint_id = disable_endpoint.endpoint_id
       and (s.disabled_at is null or s.reason is distinct from coalesce(disable_endpoint.reason, s.reason));
    perform postrider._wake_for(disable_endpoint.endpoint_id);
end
$$;
comment on function postrider.disable_endpoint(bigint, text) is
    'Sends nothing to an endpoint until enable_endpoint. What is owed waits; new events wait or end as skipped, as its policy says.';
