-- Settings and delivery policies: what a person decides about the whole installation.

create table postrider.settings (
    only_row boolean primary key default true check (only_row),
    allow_http boolean not null default false,
    max_payload_bytes integer not null default 4194304 check (max_payload_bytes between 1 and 268435456),
    retention interval not null default interval '30 days'
        check (retention between interval '1 day' and interval '365 days'),
    notify boolean not null default true
);
comment on table postrider.settings is 'The one row of settings of this installation.';
comment on column postrider.settings.only_row is 'Always true: keeps the table at one row.';
comment on column postrider.settings.allow_http is 'Whether endpoints may have http URLs; false in production, where only https is accepted.';
comment on column postrider.settings.max_payload_bytes is 'Largest payload emit_event accepts, in bytes of UTF-8.';
comment on column postrider.settings.retention is 'How long events, ended deliveries and attempts are kept, counted from the emit in whole days.';
comment on column postrider.settings.notify is 'Whether commits wake the workers by NOTIFY; false leaves them to their poll interval.';
insert into postrider.settings default values;

create table postrider.policies (
    name text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    description text not null default '',
    rate numeric not null check (rate > 0 and rate <= 100000),
    burst integer not null check (burst between 1 and 100000),
    concurrency integer not null check (concurrency between 1 and 1000),
    connect_timeout interval not null check (connect_timeout between interval '100 ms' and interval '1 minute'),
    request_timeout interval not null check (request_timeout between interval '100 ms' and interval '5 minutes'),
    max_attempts integer not null check (max_attempts >= 1),
    backoff_base interval not null check (backoff_base >= interval '0' and backoff_base <= interval '30 days'),
    backoff_factor numeric not null check (backoff_factor between 1 and 100),
    backoff_cap interval not null check (backoff_cap >= interval '0' and backoff_cap <= interval '30 days'),
    backoff_jitter text not null check (backoff_jitter in ('full', 'none')),
    retry_statuses int4multirange not null,
    time_to_live interval not null check (time_to_live between interval '1 second' and interval '30 days'),
    disable_after interval check (disable_after > interval '0'),
    disable_after_failures integer not null default 1 check (disable_after_failures >= 1),
    gone_disables boolean not null,
    pause_default interval not null check (pause_default between pause_min and pause_max),
    pause_min interval not null check (pause_min >= interval '1 second'),
    pause_max interval not null check (pause_max <= interval '24 hours'),
    pause_on_503 boolean not null,
    when_disabled text not null check (when_disabled in ('wait', 'skip'))
);
comment on table postrider.policies is 'A named delivery policy: pace, time-outs, retries, ladder. A policy is a row; two are built in.';
comment on column postrider.policies.name is 'What create_endpoint calls it.';
comment on column postrider.policies.description is 'For people.';
comment on column postrider.policies.rate is 'Requests per second to one endpoint, over the whole fleet.';
comment on column postrider.policies.burst is 'Requests that may leave at once after a quiet time.';
comment on column postrider.policies.concurrency is 'Open requests to one endpoint, over the whole fleet.';
comment on column postrider.policies.connect_timeout is 'Limit of name lookup, TCP and TLS together; within request_timeout.';
comment on column postrider.policies.request_timeout is 'One clock over the whole request, from name lookup to the end of the answer.';
comment on column postrider.policies.max_attempts is 'Failed attempts of a run after which a delivery ends as exhausted; a 429 is no failed attempt.';
comment on column postrider.policies.backoff_base is 'Delay before the first retry.';
comment on column postrider.policies.backoff_factor is 'Each later delay is this many times the one before, up to backoff_cap.';
comment on column postrider.policies.backoff_cap is 'Longest delay between two attempts.';
comment on column postrider.policies.backoff_jitter is 'full: a random delay between zero and the computed one; none: the computed one.';
comment on column postrider.policies.retry_statuses is 'HTTP statuses worth a retry. No answer at all is always retried; 429 is a pause, not a retry.';
comment on column postrider.policies.time_to_live is 'How long a delivery may stay owed, from the emit or from deliver_at.';
comment on column postrider.policies.disable_after is 'Disable an endpoint that failed without a success for this long; null: never by age.';
comment on column postrider.policies.disable_after_failures is 'And at least this many failures.';
comment on column postrider.policies.gone_disables is 'Whether an answer 410 Gone disables the endpoint at once, with an alert.';
comment on column postrider.policies.pause_default is 'Pause after a 429 that names no usable time.';
comment on column postrider.policies.pause_min is 'Shortest pause after a 429.';
comment on column postrider.policies.pause_max is 'Longest pause after a 429.';
comment on column postrider.policies.pause_on_503 is 'Whether Retry-After on a 503 pauses the endpoint too.';
comment on column postrider.policies.when_disabled is 'New deliveries to a disabled endpoint: wait, or end at once as skipped (replayable).';

create table postrider.policy_rungs (
    policy text not null references postrider.policies (name) on delete cascade on update cascade,
    rung integer not null check (rung >= 1),
    failures integer not null check (failures >= 1),
    failing_for interval not null default interval '0' check (failing_for >= interval '0'),
    pause interval check (pause > interval '0'),
    primary key (policy, rung)
);
comment on table postrider.policy_rungs is 'One rung of a policy''s ladder: what happens to an endpoint that keeps failing.';
comment on column postrider.policy_rungs.policy is 'The policy.';
comment on column postrider.policy_rungs.rung is 'Counts from 1, without gaps; one failure fires at most the next rung.';
comment on column postrider.policy_rungs.failures is 'Consecutive failed attempts that reach this rung.';
comment on column postrider.policy_rungs.failing_for is 'And the time since the first of them.';
comment on column postrider.policy_rungs.pause is 'How long the endpoint is paused; null: it is disabled.';

insert into postrider.policies values
    ('patient', 'Ten attempts over hours with full jitter; only what may pass is retried. The default.',
     10, 10, 5, '3 s', '10 s', 10, '30 s', 2, '6 h', 'full', '{[408,409),[425,426),[500,600)}', '72 h',
     '24 h', 10, true, '60 s', '1 s', '24 h', true, 'wait'),
    ('brisk', 'Three attempts within minutes; anything but a 2xx is retried.',
     10, 10, 5, '5 s', '15 s', 3, '30 s', 4, '2 min', 'none', '{[100,200),[300,429),[430,1000)}', '72 h',
     null, 1, false, '60 s', '1 s', '24 h', true, 'skip');
insert into postrider.policy_rungs (policy, rung, failures, failing_for, pause) values
    ('patient', 1, 10, '10 min', '1 h'),
    ('patient', 2, 20, '10 min', '6 h'),
    ('patient', 3, 30, '10 min', '1 day'),
    ('brisk', 1, 10, '0', '1 h'),
    ('brisk', 2, 20, '0', '6 h'),
    ('brisk', 3, 30, '0', '1 day'),
    ('brisk', 4, 40, '0', null);
