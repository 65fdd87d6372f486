-- pause_endpoint: a person stops an endpoint for a time. Deliveries wait, and their time to live runs.
--
-- Locks: the endpoint and its state, then the mark is recomputed in a statement of its own.

create or replace function postrider.pause_endpoint(
    endpoint_id bigint, until timestamptz default 'infinity', reason text default null
) returns void
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
begin
    perform postrider._require_read_committed();
    perform postrider._lock_endpoint(pause_endpoint.endpoint_id);
    v_now := postrider.now();
    if pause_endpoint.until is null or pause_endpoint.until <= v_now then
        perform postrider._fail('PR018', format('a pause until %s is none', coalesce(pause_endpoint.until::text, 'null')),
            'Give a time to come, or leave until out to pause until resume_endpoint.');
    end if;
    update postrider.endpoint_state s
       set paused_until = pause_endpoint.until, reason = w.reason
      from (select x.endpoint_id,
                   case when x.disabled_at is not null then x.reason
                        else coalesce(pause_endpoint.reason, 'paused by a person') end as reason
              from postrider.endpoint_state x where x.endpoint_id = pause_endpoint.endpoint_id) w
     where s.endpoint_id = w.endpoint_id
       and (s.paused_until, s.reason) is distinct from (pause_endpoint.until, w.reason);
    perform postrider._mark(array[pause_endpoint.endpoint_id]);
    perform postrider._wake_for(pause_endpoint.endpoint_id);
end
$$;
comment on function postrider.pause_endpoint(bigint, timestamptz, text) is
    'Sends nothing to an endpoint until then, or until resume_endpoint. A new pause replaces a person''s old one, and touches none that the ladder made or the endpoint asked for.';
