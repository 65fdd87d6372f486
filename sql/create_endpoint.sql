-- create_endpoint: an endpoint with its subscriptions, its secret and its state.
--
-- Locks: none that anyone waits for, but for a second create or update with the same tenant and URL, which
-- waits for this transaction (unique index) and is then refused.

create or replace function postrider._create_endpoint(
    url text, event_types text[], tenant text, description text, policy text, rate numeric, burst integer,
    concurrency integer, headers jsonb, signature text, secret text, out new_id bigint, out new_secret text
)
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now constant timestamptz := postrider.now();
begin
    perform postrider._require_read_committed();
    if coalesce(_create_endpoint.tenant, '') = '' or length(_create_endpoint.tenant) > 200 then
        perform postrider._fail('PR006', format('invalid tenant %L', left(_create_endpoint.tenant, 200)),
            'A tenant is a text of 1 to 200 characters; leave it out for the default tenant.');
    end if;
    perform postrider._check_url(_create_endpoint.url);
    perform postrider._check_patterns(_create_endpoint.event_types);
    perform postrider._check_policy(_create_endpoint.policy);
    perform postrider._check_pace(_create_endpoint.rate, _create_endpoint.burst, _create_endpoint.concurrency);
    perform postrider._check_headers(_create_endpoint.headers);
    perform postrider._check_signature(_create_endpoint.signature);
    new_secret := _create_endpoint.secret;
    if new_secret is null then
        new_secret := postrider._new_secret();
    else
        perform postrider._check_secret(new_secret);
    end if;

    insert into postrider.endpoints (tenant, url, description, policy, rate, burst, concurrency, headers, signature,
                                     created_at, updated_at)
    values (_create_endpoint.tenant, _create_endpoint.url, coalesce(_create_endpoint.description, ''),
            _create_endpoint.policy, _create_endpoint.rate, _create_endpoint.burst, _create_endpoint.concurrency,
            _create_endpoint.headers, _create_endpoint.signature, v_now, v_now)
    on conflict (tenant, url) where deleted_at is null do nothing
    returning id into new_id;
    if new_id is null then
        perform postrider._fail_duplicate(_create_endpoint.tenant, _create_endpoint.url);
    end if;
    insert into postrider.endpoint_state (endpoint_id) values (new_id);
    insert into postrider.endpoint_secrets (endpoint_id, secret, created_at) values (new_id, new_secret, v_now);
    insert into postrider.subscriptions (tenant, pattern, endpoint_id)
    select distinct _create_endpoint.tenant, u.pattern, new_id from unnest(_create_endpoint.event_types) u (pattern);
end
$$;
comment on function postrider._create_endpoint(text, text[], text, text, text, numeric, integer, integer, jsonb, text, text) is
    'What create_endpoint does.';

-- In SQL, since PL/pgSQL refuses an argument and a column of the result with one name, and callers want both
-- to be called secret.
create or replace function postrider.create_endpoint(
    url text, event_types text[] default '{*}', tenant text default 'default', description text default '',
    policy text default 'patient', rate numeric default null, burst integer default null,
    concurrency integer default null, headers jsonb default '{}', signature text default 'stripe',
    secret text default null
) returns table (endpoint_id bigint, secret text)
language sql security definer
set search_path to pg_catalog, pg_temp
as $$
    select c.new_id, c.new_secret
      from postrider._create_endpoint(create_endpoint.url, create_endpoint.event_types, create_endpoint.tenant,
                                      create_endpoint.description, create_endpoint.policy, create_endpoint.rate,
                                      create_endpoint.burst, create_endpoint.concurrency, create_endpoint.headers,
                                      create_endpoint.signature, create_endpoint.secret) c
$$;
comment on function postrider.create_endpoint(text, text[], text, text, text, numeric, integer, integer, jsonb, text, text) is
    'Creates an endpoint that receives the events of its tenant whose type matches one of event_types. Returns its id and signing secret, which no view shows again. A null rate, burst or concurrency is the policy''s.';
