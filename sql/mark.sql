-- The mark: endpoint_state.next_claim_at, when a worker should next look at an endpoint.

create or replace function postrider._not_before(
    rate_limited_until timestamptz, ladder_paused_until timestamptz, paused_until timestamptz, lapsed_until timestamptz
) returns timestamptz
language sql immutable parallel safe
as $$ select greatest(rate_limited_until, ladder_paused_until, paused_until, lapsed_until) $$;
comment on function postrider._not_before(timestamptz, timestamptz, timestamptz, timestamptz) is
    'The end of the longest pause; null without one.';

-- Precondition: the caller has locked the endpoint's state row in an EARLIER statement; a statement that
-- waits for the lock itself would look at pending with the snapshot from before the wait.
create or replace function postrider._mark(endpoint_ids bigint[]) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    update postrider.endpoint_state s
       set next_claim_at = m.next_claim_at
      from (select x.endpoint_id,
                   case when x.disabled_at is not null or d.due_at is null then null
                        else greatest(postrider._not_before(x.rate_limited_until, x.ladder_paused_until,
                                                            x.paused_until, x.lapsed_until), d.due_at)
                   end as next_claim_at
              from postrider.endpoint_state x
             cross join lateral (select postrider._earliest_due(x.endpoint_id) as due_at offset 0) d
             where x.endpoint_id = any (_mark.endpoint_ids)) m
     where s.endpoint_id = m.endpoint_id
       and s.next_claim_at is distinct from m.next_claim_at;
end
$$;
comment on function postrider._mark(bigint[]) is
    'Recomputes next_claim_at from the pauses and the earliest delivery owed. The caller holds the rows'' locks from an earlier statement.';

-- Wakes workers: the owner of an endpoint, or (null) whoever claims.
create or replace function postrider._wake(owner uuid) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
begin
    if coalesce(pg_catalog.current_setting('postrider.notify', true), '') = 'off'
       or not (select notify from postrider.settings) then
        return;
    end if;
    perform pg_catalog.pg_notify('postrider', coalesce(owner::text, ''));
end
$$;
comment on function postrider._wake(uuid) is
    'Sends the hint that something changed: to one worker, or to all of them (null). Nothing depends on it.';
