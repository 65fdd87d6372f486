-- Endpoints: what a person configured (endpoints, subscriptions, secrets) and, apart from it, what the
-- engine knows of each (endpoint_state, endpoint_stats, alerts). Nothing references endpoint_state, and no
-- event or delivery references endpoints: an emit must never lock an endpoint.

create table postrider.endpoints (
    id bigint generated always as identity primary key,
    tenant text not null default 'default',
    url text not null,
    description text not null default '',
    policy text not null references postrider.policies (name) on update cascade,
    rate numeric check (rate > 0 and rate <= 100000),
    burst integer check (burst between 1 and 100000),
    concurrency integer check (concurrency between 1 and 1000),
    headers jsonb not null default '{}' check (jsonb_typeof(headers) = 'object'),
    signature text not null default 'stripe' check (signature in ('stripe', 'standard')),
    created_at timestamptz not null,
    updated_at timestamptz not null,
    deleted_at timestamptz
);
create unique index endpoints_live_url on postrider.endpoints (tenant, url) where deleted_at is null;
comment on table postrider.endpoints is 'An endpoint as a person configured it: where to send, how fast, how signed.';
comment on column postrider.endpoints.id is 'Names the endpoint everywhere.';
comment on column postrider.endpoints.tenant is 'Whose endpoint: it receives events of this tenant only.';
comment on column postrider.endpoints.url is 'Where requests go. One live endpoint per tenant and URL, since pace is per destination.';
comment on column postrider.endpoints.description is 'For people.';
comment on column postrider.endpoints.policy is 'The delivery policy.';
comment on column postrider.endpoints.rate is 'Requests per second; null: the policy''s.';
comment on column postrider.endpoints.burst is 'Requests at once after a quiet time; null: the policy''s.';
comment on column postrider.endpoints.concurrency is 'Open requests; null: the policy''s.';
comment on column postrider.endpoints.headers is 'Additional request headers, name to value.';
comment on column postrider.endpoints.signature is 'Signature style: stripe, or standard (Standard Webhooks).';
comment on column postrider.endpoints.created_at is 'When it was created.';
comment on column postrider.endpoints.updated_at is 'When it was last changed.';
comment on column postrider.endpoints.deleted_at is 'When it was deleted; deleting marks, history stays readable.';

create table postrider.subscriptions (
    tenant text not null,
    pattern text not null,
    endpoint_id bigint not null references postrider.endpoints (id) on delete cascade,
    primary key (tenant, pattern, endpoint_id)
);
create index subscriptions_endpoint on postrider.subscriptions (endpoint_id);
comment on table postrider.subscriptions is 'An endpoint subscribes to an event-type pattern: *, invoice.* or invoice.paid.';
comment on column postrider.subscriptions.tenant is 'The endpoint''s tenant, repeated so that one index answers fan_out.';
comment on column postrider.subscriptions.pattern is 'The pattern. Matching looks up the event type''s own prefixes, so cost does not grow with the number of endpoints.';
comment on column postrider.subscriptions.endpoint_id is 'The endpoint.';

create table postrider.endpoint_secrets (
    id bigint generated always as identity primary key,
    endpoint_id bigint not null references postrider.endpoints (id) on delete cascade,
    secret text not null,
    created_at timestamptz not null,
    expires_at timestamptz
);
create index endpoint_secrets_endpoint on postrider.endpoint_secrets (endpoint_id);
comment on table postrider.endpoint_secrets is 'A signing secret. Several are valid at once while one is rotated; each signs.';
comment on column postrider.endpoint_secrets.id is 'Newer secrets have higher ids; the newest signs first.';
comment on column postrider.endpoint_secrets.endpoint_id is 'The endpoint.';
comment on column postrider.endpoint_secrets.secret is 'whsec_ and the base64 of the key.';
comment on column postrider.endpoint_secrets.created_at is 'When it was made.';
comment on column postrider.endpoint_secrets.expires_at is 'When it stops signing; null: the current secret.';

create table postrider.endpoint_state (
    endpoint_id bigint primary key,
    next_claim_at timestamptz,
    owner uuid,
    lapses integer not null default 0,
    lapsed_until timestamptz,
    pace_until timestamptz,
    failures integer not null default 0 check (failures >= 0),
    failing_since timestamptz,
    rung integer not null default 0 check (rung >= 0),
    rate_limited_until timestamptz,
    ladder_paused_until timestamptz,
    paused_until timestamptz,
    disabled_at timestamptz,
    enabled_at timestamptz,
    reason text,
    check ((failures = 0) = (failing_since is null)),
    check (disabled_at is null or next_claim_at is null)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);
create index endpoint_state_claim on postrider.endpoint_state (next_claim_at)
    where owner is null and next_claim_at is not null;
create index endpoint_state_owner on postrider.endpoint_state (owner) where owner is not null;
comment on table postrider.endpoint_state is 'What the engine knows of an endpoint. Narrow and hot; written only when a value changes.';
comment on column postrider.endpoint_state.endpoint_id is 'The endpoint.';
comment on column postrider.endpoint_state.next_claim_at is 'When a worker should next look: never before the end of a pause; null: nothing owed, or disabled.';
comment on column postrider.endpoint_state.owner is 'The worker that owns the endpoint, which is its lease on every delivery of it. Only the end of a lease takes it away.';
comment on column postrider.endpoint_state.lapses is 'Takeovers after a lapsed lease without a report between.';
comment on column postrider.endpoint_state.lapsed_until is 'After repeated lapses: not claimed before.';
comment on column postrider.endpoint_state.pace_until is 'Where the pace stands (GCRA theoretical arrival time) as the last owner left it.';
comment on column postrider.endpoint_state.failures is 'Failed attempts since the last success; 429 excluded.';
comment on column postrider.endpoint_state.failing_since is 'When the first of them ended; a changed value is a new streak.';
comment on column postrider.endpoint_state.rung is 'The last rung of the ladder that fired in this streak.';
comment on column postrider.endpoint_state.rate_limited_until is 'Pause that the endpoint itself asked for (429, or Retry-After on 503).';
comment on column postrider.endpoint_state.ladder_paused_until is 'Pause made by the ladder.';
comment on column postrider.endpoint_state.paused_until is 'Pause made by a person.';
comment on column postrider.endpoint_state.disabled_at is 'Since when it is disabled; only enable_endpoint ends that.';
comment on column postrider.endpoint_state.enabled_at is 'When a person last enabled it; requests begun before do not count on the ladder.';
comment on column postrider.endpoint_state.reason is 'Why it is paused or disabled, for people.';

create table postrider.low_keys (
    endpoint_id bigint not null,
    low_due_at timestamptz not null,
    primary key (endpoint_id, low_due_at)
);
comment on table postrider.low_keys is 'Where a scan of an endpoint''s deliveries may begin, so that it does not walk dead rows. Only the highest of an endpoint counts.';
comment on column postrider.low_keys.endpoint_id is 'The endpoint.';
comment on column postrider.low_keys.low_due_at is 'No live delivery of it is due before this.';

create table postrider.endpoint_stats (
    endpoint_id bigint not null,
    hour timestamptz not null,
    delivered integer not null default 0,
    failed integer not null default 0,
    rate_limited integer not null default 0,
    latency integer[] not null,
    summed boolean not null default false
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
-- Without a key: a publication of all tables would refuse to delete from it.
alter table postrider.endpoint_stats replica identity full;
create index endpoint_stats_endpoint on postrider.endpoint_stats (endpoint_id, hour);
create index endpoint_stats_unsummed on postrider.endpoint_stats (endpoint_id) where not summed;
create index endpoint_stats_hour on postrider.endpoint_stats (hour) where summed;
comment on table postrider.endpoint_stats is 'Attempts by endpoint and hour: their sum is what happened. A report adds rows, maintain makes one of those of an hour.';
comment on column postrider.endpoint_stats.endpoint_id is 'The endpoint.';
comment on column postrider.endpoint_stats.hour is 'Start of the hour (UTC).';
comment on column postrider.endpoint_stats.delivered is 'Attempts answered with a 2xx.';
comment on column postrider.endpoint_stats.failed is 'Attempts that failed, 429 excluded.';
comment on column postrider.endpoint_stats.rate_limited is 'Attempts answered with a 429.';
comment on column postrider.endpoint_stats.latency is 'Histogram of durations of answered attempts; element n counts those up to the n-th bound of _latency_bounds().';
comment on column postrider.endpoint_stats.summed is 'Whether maintain made it of earlier rows.';

create table postrider.alerts (
    id bigint generated always as identity primary key,
    endpoint_id bigint not null,
    tenant text not null,
    kind text not null check (kind in ('endpoint_paused', 'endpoint_disabled')),
    message text not null,
    created_at timestamptz not null,
    dismissed_at timestamptz
);
create index alerts_endpoint_open on postrider.alerts (endpoint_id) where dismissed_at is null;
comment on table postrider.alerts is 'Something a person should know about an endpoint.';
comment on column postrider.alerts.id is 'Names the alert.';
comment on column postrider.alerts.endpoint_id is 'The endpoint.';
comment on column postrider.alerts.tenant is 'Its tenant.';
comment on column postrider.alerts.kind is 'endpoint_paused (the ladder fired) or endpoint_disabled.';
comment on column postrider.alerts.message is 'What happened, and what to do.';
comment on column postrider.alerts.created_at is 'When.';
comment on column postrider.alerts.dismissed_at is 'When a person dismissed it, or enabling the endpoint did.';
