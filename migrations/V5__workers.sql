-- Workers: a row per unbroken lease.

create table postrider.workers (
    id uuid primary key default gen_random_uuid(),
    name text not null,
    version text not null,
    beat bigint not null default 0,
    registered_at timestamptz not null,
    seen_at timestamptz not null
);
comment on table postrider.workers is 'A live worker. Its id is one unbroken lease, fresh each time it registers.';
comment on column postrider.workers.id is 'Fresh per lease; nothing keys on a name that can repeat.';
comment on column postrider.workers.name is 'Host name and process id, for people.';
comment on column postrider.workers.version is 'Release of the program.';
comment on column postrider.workers.beat is 'Counts up with each heartbeat. A peer that saw it unchanged for a lease of its own time ends the lease.';
comment on column postrider.workers.registered_at is 'When it registered.';
comment on column postrider.workers.seen_at is 'When it last beat; for people, judged by nobody.';
