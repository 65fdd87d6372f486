-- Events and the outbox. Partitioned tables are ranges of the event's uuid v7, a day each, so that an event,
-- its deliveries and its attempts live and go together. The leaves are made by _make_leaves() (sql/partitions.sql);
-- the default partition catches a stray, so that no emit can fail for want of a day.

create table postrider.events (
    id uuid not null,
    tenant text not null,
    event_type text not null,
    body text not null,
    endpoint_id bigint,
    deliver_at timestamptz,
    created_at timestamptz not null,
    primary key (id)
) partition by range (id);
create table postrider.events_default partition of postrider.events default;
comment on table postrider.events is 'An emitted event; append-only. It exists if and only if the emitting transaction committed.';
comment on column postrider.events.id is 'uuid v7 (RFC 9562, sub-millisecond fraction in rand_a); the Webhook-Id.';
comment on column postrider.events.tenant is 'Whose event.';
comment on column postrider.events.event_type is 'Dot-separated, such as invoice.paid.';
comment on column postrider.events.body is 'The bytes every attempt sends, exactly as emitted.';
comment on column postrider.events.endpoint_id is 'When set: for this endpoint alone, whatever its subscriptions.';
comment on column postrider.events.deliver_at is 'When set: not to be sent before.';
comment on column postrider.events.created_at is 'When it was emitted.';

create table postrider.outbox (
    event_id uuid primary key,
    after_endpoint bigint
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
create index outbox_large on postrider.outbox (event_id) where after_endpoint is not null;
comment on table postrider.outbox is 'An event not yet fanned out.';
comment on column postrider.outbox.event_id is 'The event.';
comment on column postrider.outbox.after_endpoint is 'null: not looked at. Else an event with too many endpoints for one step: the last endpoint done, 0 before the first.';

create table postrider.deferred (
    endpoint_id bigint not null,
    event_id uuid not null,
    primary key (endpoint_id, event_id)
);
create index deferred_event on postrider.deferred (event_id);
comment on table postrider.deferred is 'A delivery that fan_out could not make yet, since a transaction held its endpoint''s state; usually empty.';
comment on column postrider.deferred.endpoint_id is 'The endpoint.';
comment on column postrider.deferred.event_id is 'The event.';

create table postrider.idempotency_keys (
    tenant text not null,
    key text not null,
    event_id uuid not null,
    primary key (tenant, key)
);
create index idempotency_keys_event on postrider.idempotency_keys (event_id);
comment on table postrider.idempotency_keys is 'An idempotency key and the event it stands for, kept as long as the event.';
comment on column postrider.idempotency_keys.tenant is 'The tenant.';
comment on column postrider.idempotency_keys.key is 'What the application called the event.';
comment on column postrider.idempotency_keys.event_id is 'The event.';
