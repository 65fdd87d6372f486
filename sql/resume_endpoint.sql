-- resume_endpoint: ends a person's and the ladder's pause. Not one the endpoint asked for by a 429; and its
-- failures stay counted, so that the ladder goes on where it was.
--
-- Locks: the endpoint and its state, then the mark is recomputed in a statement of its own.

create or replace function postrider.resume_endpoint(endpoint_id bigint) returns void
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform postrider._require_read_committed();
    perform postrider._lock_endpoint(resume_endpoint.endpoint_id);
    update postrider.endpoint_state s
       set paused_until = null, ladder_paused_until = null,
           reason = case when s.disabled_at is not null then s.reason end
     where s.endpoint_id = resume_endpoint.endpoint_id
       and (s.paused_until is not null or s.ladder_paused_until is not null);
    perform postrider._mark(array[resume_endpoint.endpoint_id]);
    perform postrider._wake_for(resume_endpoint.endpoint_id);
end
$$;
comment on function postrider.resume_endpoint(bigint) is
    'Ends a pause made by a person or by the ladder; the failures stay counted. A pause that the endpoint itself asked for (429) goes on, and a disabled endpoint stays disabled.';
