-- What the verbs of operators share.
--
-- Lock order: workers, outbox, endpoints, endpoint_state, pending. A verb that changes an endpoint takes
-- endpoints and endpoint_state here, FOR NO KEY UPDATE (an emit, which reads endpoints plainly, and a
-- subscription's key check wait for neither), and looks in its next statement: lock, then look.

create or replace function postrider._lock_endpoint(endpoint_id bigint) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform from postrider.endpoints n
      where n.id = _lock_endpoint.endpoint_id and n.deleted_at is null for no key update;
    if not found then
        perform postrider._fail('PR004', format('there is no endpoint %s', coalesce(_lock_endpoint.endpoint_id::text, 'null')),
            'It was never created, or it was deleted; postrider.endpoint_health lists the endpoints there are.');
    end if;
    perform from postrider.endpoint_state s where s.endpoint_id = _lock_endpoint.endpoint_id for no key update;
end
$$;
comment on function postrider._lock_endpoint(bigint) is
    'Locks an endpoint and its state until the transaction ends; PR004 if it does not exist or was deleted.';

create or replace function postrider._wake_for(endpoint_id bigint) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_state record;
begin
    select s.owner, s.next_claim_at into v_state
      from postrider.endpoint_state s where s.endpoint_id = _wake_for.endpoint_id;
    if v_state.owner is not null or v_state.next_claim_at is not null then
        perform postrider._wake(v_state.owner);
    end if;
end
$$;
comment on function postrider._wake_for(bigint) is
    'Tells the owner of an endpoint that it changed; without one, whoever may now claim it.';

create or replace function postrider._check_pace(rate numeric, burst integer, concurrency integer) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_problem text := case
        when rate not between 0.00001 and 100000 then format('rate %s is not between 0.00001 and 100000 a second', rate)
        when burst not between 1 and 100000 then format('burst %s is not between 1 and 100000', burst)
        when concurrency not between 1 and 1000 then format('concurrency %s is not between 1 and 1000', concurrency)
    end;
begin
    if v_problem is not null then
        perform postrider._fail('PR012', v_problem, 'null takes the policy''s; to stop sending use postrider.pause_endpoint.');
    end if;
end
$$;
comment on function postrider._check_pace(numeric, integer, integer) is
    'Refuses a rate, burst or concurrency that cannot be kept (PR012); null is the policy''s.';

create or replace function postrider._check_policy(policy text) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
begin
    if not exists (select from postrider.policies p where p.name = policy) then
        perform postrider._fail('PR010', format('there is no policy %L', left(policy, 200)),
            format('There are: %s.', (select string_agg(p.name, ', ' order by p.name) from postrider.policies p)));
    end if;
end
$$;
comment on function postrider._check_policy(text) is
    'Refuses a policy that does not exist (PR010).';

create or replace function postrider._check_signature(signature text) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
begin
    if coalesce(signature not in ('stripe', 'standard'), true) then
        perform postrider._fail('PR015', format('there is no signature style %L', left(signature, 200)),
            'Styles are stripe and standard (Standard Webhooks).');
    end if;
end
$$;
comment on function postrider._check_signature(text) is
    'Refuses a signature style that does not exist (PR015).';

create or replace function postrider._fail_duplicate(tenant text, url text) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
begin
    perform postrider._fail('PR017', format('tenant %L has an endpoint with the URL %L already', tenant, left(url, 200)),
        'Pace is kept per destination: give that endpoint more event types with postrider.update_endpoint, or delete it first.');
end
$$;
comment on function postrider._fail_duplicate(text, text) is
    'Raises PR017: one live endpoint per tenant and URL.';
