-- update_endpoint: changes what a person configured. A tenant never changes (what is owed would go to another
-- tenant), and secrets change by rotate_secret.
--
-- Locks: the endpoint and its state. Takes effect within a second: the owner is told, and each of its refills
-- brings the settings as they are.

create or replace function postrider.update_endpoint(
    endpoint_id bigint, url text default null, event_types text[] default null, description text default null,
    policy text default null, rate numeric default null, burst integer default null, concurrency integer default null,
    headers jsonb default null, signature text default null, use_policy_pace boolean default false
) returns void
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
    v_old record;
    v_own_pace boolean := not coalesce(update_endpoint.use_policy_pace, false);
    v_changed boolean;
begin
    perform postrider._require_read_committed();
    if not v_own_pace and coalesce(update_endpoint.rate, update_endpoint.burst, update_endpoint.concurrency) is not null then
        perform postrider._fail('PR012', 'use_policy_pace and an own rate, burst or concurrency exclude each other',
            'Give one or the other.');
    end if;
    perform postrider._check_pace(update_endpoint.rate, update_endpoint.burst, update_endpoint.concurrency);
    -- null = as it is, so only what is given is checked.
    if update_endpoint.url is not null then perform postrider._check_url(update_endpoint.url); end if;
    if update_endpoint.event_types is not null then perform postrider._check_patterns(update_endpoint.event_types); end if;
    if update_endpoint.policy is not null then perform postrider._check_policy(update_endpoint.policy); end if;
    if update_endpoint.headers is not null then perform postrider._check_headers(update_endpoint.headers); end if;
    if update_endpoint.signature is not null then perform postrider._check_signature(update_endpoint.signature); end if;
    perform postrider._lock_endpoint(update_endpoint.endpoint_id);
    v_now := postrider.now();
    select n.tenant, n.url into v_old from postrider.endpoints n where n.id = update_endpoint.endpoint_id;

    begin
        update postrider.endpoints n
           set url = w.url, description = w.description, policy = w.policy, rate = w.rate, burst = w.burst,
               concurrency = w.concurrency, headers = w.headers, signature = w.signature, updated_at = v_now
          from (select coalesce(update_endpoint.url, o.url) as url,
                       coalesce(update_endpoint.description, o.description) as description,
                       coalesce(update_endpoint.policy, o.policy) as policy,
                       case when v_own_pace then coalesce(update_endpoint.rate, o.rate) end as rate,
                       case when v_own_pace then coalesce(update_endpoint.burst, o.burst) end as burst,
                       case when v_own_pace then coalesce(update_endpoint.concurrency, o.concurrency) end as concurrency,
                       coalesce(update_endpoint.headers, o.headers) as headers,
                       coalesce(update_endpoint.signature, o.signature) as signature
                  from postrider.endpoints o where o.id = update_endpoint.endpoint_id) w
         where n.id = update_endpoint.endpoint_id
           and (n.url, n.description, n.policy, n.rate, n.burst, n.concurrency, n.headers, n.signature)
               is distinct from (w.url, w.description, w.policy, w.rate, w.burst, w.concurrency, w.headers, w.signature);
        v_changed := found;
    exception when unique_violation then
        perform postrider._fail_duplicate(v_old.tenant, update_endpoint.url);
    end;
    if update_endpoint.event_types is not null then
        delete from postrider.subscriptions s
         where s.endpoint_id = update_endpoint.endpoint_id and s.pattern <> all (update_endpoint.event_types);
        insert into postrider.subscriptions (tenant, pattern, endpoint_id)
        select distinct v_old.tenant, u.pattern, update_endpoint.endpoint_id
          from unnest(update_endpoint.event_types) u (pattern)
        on conflict do nothing;
    end if;
    if v_changed then
        perform postrider._wake_for(update_endpoint.endpoint_id);
    end if;
end
$$;
comment on function postrider.update_endpoint(bigint, text, text[], text, text, numeric, integer, integer, jsonb, text, boolean) is
    'Changes an endpoint; null leaves a setting as it is. use_policy_pace gives up its own rate, burst and concurrency. New event_types replace the old ones and hold for events fanned out from then on.';
