-- Workers: registering, beating, and the end of a lease.
--
-- A lease ends only when a peer has seen the beat unchanged for a lease of its own time; no clock of the
-- database decides it. Locks: the caller's own workers row, then the rows of peers that stopped beating
-- (SKIP LOCKED: whoever holds one is alive), then endpoint_state, ids ascending, SKIP LOCKED. A claim holds its worker's
-- row FOR KEY SHARE, so the delete waits for it and the statement after it sees what was claimed.

create or replace function postrider.register_worker(name text, version text)
returns table (worker uuid, peer uuid, beat bigint, clock_us bigint)
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_worker uuid;
begin
    perform postrider._require_read_committed();
    perform postrider._require_durable_commit();
    insert into postrider.workers (name, version, registered_at, seen_at)
    values (register_worker.name, register_worker.version, postrider.now(), postrider.now())
    returning id into v_worker;
    if postrider._free_orphans(true) > 0 then
        perform postrider._wake(null);
    end if;
    return query
        select v_worker, w.id, w.beat, postrider._clock_us() from postrider.workers w order by w.id;
end
$$;
comment on function postrider.register_worker(text, text) is
    'Registers a worker under a fresh id, and frees what nobody who is registered owns; a row per live worker, itself included, with the beat to watch from now on and the database clock in microseconds since 1970.';

create or replace function postrider._clock_us() returns bigint
language sql stable
set search_path to pg_catalog, pg_temp
as $$ select (extract(epoch from postrider.now()) * 1000000)::bigint $$;
comment on function postrider._clock_us() is
    'The database clock in microseconds since 1970, which workers carry forward.';

-- Frees what is owned by nobody who is registered. An endpoint that a transaction holds is left for the next
-- heartbeat: a heartbeat must not wait, or its own lease would go. A clean end leaves no lapse; either way the
-- bucket of the next owner is empty, since nobody knows where the pace stood.
create or replace function postrider._free_orphans(lapsed boolean) returns integer
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_endpoints bigint[];
    v_now timestamptz;
begin
    v_endpoints := array(select s.endpoint_id from postrider.endpoint_state s
                          where s.owner is not null
                            and not exists (select from postrider.workers w where w.id = s.owner)
                          order by s.endpoint_id for no key update of s skip locked);
    if cardinality(v_endpoints) = 0 then
        return 0;
    end if;
    -- Lock, then look: a row that was freed and claimed anew meanwhile has an owner whom the first statement's
    -- snapshot of workers did not know.
    v_endpoints := array(select s.endpoint_id from postrider.endpoint_state s
                          where s.endpoint_id = any (v_endpoints) and s.owner is not null
                            and not exists (select from postrider.workers w where w.id = s.owner));
    v_now := postrider.now();
    update postrider.endpoint_state s
       set owner = null,
           pace_until = v_now + make_interval(secs => least(coalesce(n.burst, p.burst) / coalesce(n.rate, p.rate), 31536000)::double precision),
           lapses = case when _free_orphans.lapsed then s.lapses + 1 else s.lapses end,
           lapsed_until = case when _free_orphans.lapsed then v_now + postrider._lapse_delay(s.lapses + 1) else s.lapsed_until end
      from postrider.endpoints n
      join postrider.policies p on p.name = n.policy
     where s.endpoint_id = any (v_endpoints) and n.id = s.endpoint_id;
    perform postrider._mark(v_endpoints);
    return cardinality(v_endpoints);
end
$$;
comment on function postrider._free_orphans(boolean) is
    'Takes all endpoints from workers that are not registered any more, but for those that a transaction holds.';

create or replace function postrider._lapse_delay(lapses integer) returns interval
language sql immutable parallel safe
as $$
    select case when lapses <= 1 then interval '0' when lapses = 2 then interval '1 min'
                when lapses = 3 then interval '4 min' when lapses = 4 then interval '15 min'
                else interval '40 min' end
$$;
comment on function postrider._lapse_delay(integer) is
    'How long an endpoint is left alone after its n-th lapsed lease without a report between: claimed anew at 0, 1, 5, 20, 60 min, then every 40, so at most 5 times in an hour with the first.';

create or replace function postrider.heartbeat(worker uuid, dead uuid[], dead_beats bigint[])
returns table (peer uuid, beat bigint, clock_us bigint, owned bigint)
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_dead uuid;
begin
    perform postrider._require_read_committed();
    perform postrider._require_durable_commit();
    update postrider.workers w
       set beat = w.beat + 1, seen_at = postrider.now()
     where w.id = heartbeat.worker;
    if not found then
        perform postrider._fail('PR021', format('worker %s is not registered', heartbeat.worker),
            'Its lease has lapsed; register anew.');
    end if;
    for v_dead in
        select w.id from postrider.workers w
          join unnest(heartbeat.dead, heartbeat.dead_beats) d (id, beat) on d.id = w.id and d.beat = w.beat
         where w.id <> heartbeat.worker
         order by w.id for update of w skip locked
    loop
        delete from postrider.workers w where w.id = v_dead;
    end loop;
    if postrider._free_orphans(true) > 0 then
        perform postrider._wake(null);
    end if;
    return query
        select w.id, w.beat, postrider._clock_us(),
               (select count(*) from postrider.endpoint_state s where s.owner is not null)
          from postrider.workers w order by w.id;
end
$$;
comment on function postrider.heartbeat(uuid, uuid[], bigint[]) is
    'Beats, and ends the leases of the peers still at the beat that the caller has seen unchanged for a lease. Returns the live workers with their beats, the database clock, and how many endpoints are owned in all. PR021: the caller''s own lease is gone.';

create or replace function postrider.deregister_worker(worker uuid, lapsed boolean default false) returns void
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform postrider._require_read_committed();
    perform postrider._require_durable_commit();
    delete from postrider.workers w where w.id = deregister_worker.worker;
    if postrider._free_orphans(deregister_worker.lapsed) > 0 then
        perform postrider._wake(null);
    end if;
end
$$;
comment on function postrider.deregister_worker(uuid, boolean) is
    'Ends a worker''s lease: cleanly, or as lapsed when the worker itself found that it had lost it.';
