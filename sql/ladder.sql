-- The ladder: a BEFORE UPDATE row trigger on endpoint_state, fired when failures or failing_since changes.
-- Whatever changes the count, the transition follows. It locks nothing beyond the row being updated; it reads
-- endpoints, policies, policy_rungs and pending plainly.

create or replace function postrider._ladder() returns trigger
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_now constant timestamptz := postrider.now();
    v_policy record;
    v_rung record;
begin
    if new.failures = 0 or new.failing_since is distinct from old.failing_since then
        -- A success came between: a new streak, or none.
        new.rung := 0;
        new.ladder_paused_until := null;
        if new.disabled_at is null and (new.paused_until is null or new.paused_until <= v_now) then
            new.reason := null;
        end if;
    end if;
    if new.failures > 0 and new.disabled_at is null
       and (new.failures > old.failures or new.failing_since is distinct from old.failing_since)
       -- Answers to requests begun before the pause count, but climb no further.
       and (new.ladder_paused_until is null or new.ladder_paused_until <= v_now)
    then
        select p.name, p.disable_after, p.disable_after_failures into v_policy
          from postrider.endpoints e join postrider.policies p on p.name = e.policy
         where e.id = new.endpoint_id;
        select r.rung, r.pause into v_rung
          from postrider.policy_rungs r
         where r.policy = v_policy.name and r.rung = new.rung + 1
           and new.failures >= r.failures and v_now - new.failing_since >= r.failing_for;
        if v_policy.disable_after is not null and v_now - new.failing_since >= v_policy.disable_after
           and new.failures >= v_policy.disable_after_failures
        then
            new.disabled_at := v_now;
            new.reason := format('failing since %s: %s failures in a row', new.failing_since, new.failures);
        elsif v_rung.rung is not null then
            new.rung := v_rung.rung;
            new.reason := format('%s failures in a row', new.failures);
            if v_rung.pause is null then
                new.disabled_at := v_now;
            else
                new.ladder_paused_until := v_now + v_rung.pause;
            end if;
        end if;
    end if;
    if new.disabled_at is not null then
        new.next_claim_at := null;
    elsif old.ladder_paused_until > v_now and new.ladder_paused_until is null then
        -- The end of a pause recomputes the mark: it lay at the pause's end. The row is locked by now.
        new.next_claim_at := (
            select greatest(postrider._not_before(new.rate_limited_until, null, new.paused_until, new.lapsed_until), d.due_at)
              from (select postrider._earliest_due(new.endpoint_id) as due_at offset 0) d
             where d.due_at is not null);
    elsif new.next_claim_at is not null then
        new.next_claim_at := greatest(new.next_claim_at, new.ladder_paused_until);
    end if;
    return new;
end
$$;
comment on function postrider._ladder() is
    'Trigger of endpoint_state: at most one rung per update, cleared by a success.';

create or replace function postrider._alert() returns trigger
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
begin
    insert into postrider.alerts (endpoint_id, tenant, kind, message, created_at)
    select e.id, e.tenant,
           case when new.disabled_at is not null then 'endpoint_disabled' else 'endpoint_paused' end,
           case when new.disabled_at is not null
                then format('Endpoint %s (%s) was disabled: %s. Mend it, then call postrider.enable_endpoint(%s).',
                            e.id, e.url, coalesce(new.reason, 'no reason given'), e.id)
                else format('Endpoint %s (%s) is paused until %s: %s. It is tried again by itself; postrider.resume_endpoint(%s) tries at once.',
                            e.id, e.url, new.ladder_paused_until, coalesce(new.reason, 'it keeps failing'), e.id)
           end,
           postrider.now()
      from postrider.endpoints e
     where e.id = new.endpoint_id and e.deleted_at is null;
    return null;
end
$$;
comment on function postrider._alert() is
    'Trigger of endpoint_state: an alert when a rung fired or the endpoint was disabled.';

do $$
begin
    if not exists (select from pg_catalog.pg_trigger
                    where tgrelid = 'postrider.endpoint_state'::pg_catalog.regclass and tgname = 'ladder') then
        create trigger ladder before update on postrider.endpoint_state
            for each row when (old.failures is distinct from new.failures
                               or old.failing_since is distinct from new.failing_since)
            execute function postrider._ladder();
    end if;
    if not exists (select from pg_catalog.pg_trigger
                    where tgrelid = 'postrider.endpoint_state'::pg_catalog.regclass and tgname = 'ladder_alert') then
        create trigger ladder_alert after update on postrider.endpoint_state
            for each row when ((old.disabled_at is null and new.disabled_at is not null)
                               or (new.disabled_at is null and new.rung > 0
                                   and (new.rung > old.rung or new.failing_since is distinct from old.failing_since)))
            execute function postrider._alert();
    end if;
end
$$;
