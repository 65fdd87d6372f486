-- Deliveries: pending is the only hot table and only ever holds live work; what ended moves to finished.

create table postrider.pending (
    event_id uuid not null,
    endpoint_id bigint not null,
    run integer not null default 1 check (run >= 1),
    due_at timestamptz not null,
    attempts integer not null default 0,
    failures integer not null default 0,
    rate_limited integer not null default 0,
    last_http_status integer,
    last_error text,
    expires_at timestamptz not null,
    primary key (event_id, endpoint_id)
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
create index pending_due on postrider.pending (endpoint_id, due_at, event_id);
comment on table postrider.pending is 'A delivery still owed: one event to one endpoint.';
comment on column postrider.pending.event_id is 'The event.';
comment on column postrider.pending.endpoint_id is 'The endpoint.';
comment on column postrider.pending.run is '1 for the first sending; each replay counts one up.';
comment on column postrider.pending.due_at is 'When it may next be attempted.';
comment on column postrider.pending.attempts is 'Requests made in this run, 429 included.';
comment on column postrider.pending.failures is 'Failed attempts of this run; what the policy''s limit and backoff count.';
comment on column postrider.pending.rate_limited is 'Attempts of this run that were answered with a 429.';
comment on column postrider.pending.last_http_status is 'Status of the last answer.';
comment on column postrider.pending.last_error is 'What went wrong last.';
comment on column postrider.pending.expires_at is 'End of its time to live: ends as expired when still owed then.';

create table postrider.finished (
    event_id uuid not null,
    endpoint_id bigint not null,
    run integer not null,
    status text not null
        check (status in ('delivered', 'rejected', 'exhausted', 'expired', 'cancelled', 'skipped')),
    reason text,
    attempts integer not null,
    failures integer not null,
    last_http_status integer,
    last_error text,
    finished_at timestamptz not null,
    primary key (event_id, endpoint_id, run)
) partition by range (event_id);
create table postrider.finished_default partition of postrider.finished default;
comment on table postrider.finished is 'A run of a delivery that ended; append-only.';
comment on column postrider.finished.event_id is 'The event.';
comment on column postrider.finished.endpoint_id is 'The endpoint.';
comment on column postrider.finished.run is '1 for the first sending; each replay counts one up.';
comment on column postrider.finished.status is 'delivered, rejected (an answer that will not change), exhausted, expired, cancelled or skipped.';
comment on column postrider.finished.reason is 'Why, in words, unless delivered.';
comment on column postrider.finished.attempts is 'Requests made in this run, 429 included.';
comment on column postrider.finished.failures is 'Failed attempts of this run.';
comment on column postrider.finished.last_http_status is 'Status of the last answer.';
comment on column postrider.finished.last_error is 'What went wrong last.';
comment on column postrider.finished.finished_at is 'When it ended.';

create table postrider.attempts (
    event_id uuid not null,
    endpoint_id bigint not null,
    worker uuid not null,
    seq bigint not null,
    run integer not null,
    number integer not null,
    outcome text not null check (outcome in ('delivered', 'failed', 'rate_limited')),
    started_at timestamptz not null,
    duration_ms integer not null,
    http_status integer,
    error_code text,
    error text,
    retry_after interval,
    answer text,
    stale boolean not null default false,
    primary key (event_id, endpoint_id, worker, seq)
) partition by range (event_id);
create table postrider.attempts_default partition of postrider.attempts default;
comment on table postrider.attempts is 'One HTTP request, as the worker reported it; append-only.';
comment on column postrider.attempts.event_id is 'The event.';
comment on column postrider.attempts.endpoint_id is 'The endpoint.';
comment on column postrider.attempts.worker is 'The worker that sent it.';
comment on column postrider.attempts.seq is 'Counts up in the worker: (worker, seq) names the attempt.';
comment on column postrider.attempts.run is 'The run of the delivery.';
comment on column postrider.attempts.number is 'Counts the requests of the run from 1; the Webhook-Attempt header.';
comment on column postrider.attempts.outcome is 'delivered (2xx), rate_limited (429) or failed.';
comment on column postrider.attempts.started_at is 'When the request got its slot, by the database clock.';
comment on column postrider.attempts.duration_ms is 'From there to the end of the answer, in milliseconds.';
comment on column postrider.attempts.http_status is 'Status of the answer; null: none came.';
comment on column postrider.attempts.error_code is 'Why no answer came: timeout, connect, dns, tls, address_refused ….';
comment on column postrider.attempts.error is 'The same in words.';
comment on column postrider.attempts.retry_after is 'How long the answer asked to wait.';
comment on column postrider.attempts.answer is 'Up to 500 characters of the answer''s body.';
comment on column postrider.attempts.stale is 'True: it moved nothing, since it came after the lease had lapsed, or for a run or delivery that had ended.';
