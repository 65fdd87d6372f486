-- Roles and what each may do; the last file. Nothing is open to PUBLIC, and what is not granted here is taken
-- from the four roles again, so that this file is the whole answer to who may do what. Grants that a person
-- made to other roles stay.
--
-- Roles belong to the cluster, not to the database: an installer without CREATEROLE finds them made by an
-- administrator, or goes on without them; and several databases of one cluster may install at once.
-- Locks: the name of a role to be made, on which another database's installer waits until this one commits.

create or replace function postrider._grant() returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_change record;
    -- Functions that views call: Postgres asks whether the reader, not the view's owner, may.
    v_helpers constant text[] := '{now,_not_before,_uuid_time,_uuid_floor,_event_type,_count_finished,
                                   _latency_bounds,_latency_quantile,_latency_sum}';
    v_verbs constant text[] := '{create_endpoint,update_endpoint,delete_endpoint,pause_endpoint,resume_endpoint,
                                 disable_endpoint,enable_endpoint,rotate_secret,dismiss_alert,send_test_event,
                                 replay_delivery,replay,cancel,explain_delivery,retry_preview}';
    v_engine constant text[] := '{register_worker,heartbeat,fan_out,claim_endpoints,fetch_deliveries,fetch_due,
                                  report_attempts,release_endpoints,deregister_worker,maintain}';
    v_views constant text[] := '{deliveries,event_status,endpoint_health,queue_depth,attempts,alerts,
                                 policies,policy_rungs}';
begin
    for v_change in
        with wish (role, kind, names, privileges) as (values
            ('postrider_emitter', 'schema', '{postrider}'::text[], '{USAGE}'::text[]),
            ('postrider_emitter', 'routine', '{emit_event}', '{EXECUTE}'),
            ('postrider_worker', 'schema', '{postrider}', '{USAGE}'),
            ('postrider_worker', 'routine', v_engine || '{now,_not_before}'::text[], '{EXECUTE}'),
            ('postrider_worker', 'table', '{install,queue_depth}', '{SELECT}'),
            ('postrider_operator', 'schema', '{postrider}', '{USAGE}'),
            ('postrider_operator', 'routine', v_verbs || v_helpers, '{EXECUTE}'),
            ('postrider_operator', 'table', v_views || '{settings,install}'::text[], '{SELECT}'),
            ('postrider_operator', 'table', '{policies,policy_rungs}', '{INSERT,UPDATE,DELETE}'),
            ('postrider_reader', 'schema', '{postrider}', '{USAGE}'),
            ('postrider_reader', 'routine', v_helpers || '{explain_delivery,retry_preview}'::text[], '{EXECUTE}'),
            ('postrider_reader', 'table', v_views, '{SELECT}')
        ), role (oid, role, name) as (
            select 0::oid, null, 'public'
            union all
            select r.oid, r.rolname, quote_ident(r.rolname) from pg_roles r where r.rolname in (select w.role from wish w)
        ), object (kind, name, text, acl) as (
            select 'routine', p.proname, p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner))
              from pg_proc p where p.pronamespace = 'postrider'::regnamespace
            union all
            select case c.relkind when 'S' then 'sequence' else 'table' end, c.relname, c.oid::regclass::text,
                   coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner))
              from pg_class c
             where c.relnamespace = 'postrider'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
            union all
            select 'schema', n.nspname, quote_ident(n.nspname), coalesce(n.nspacl, acldefault('n', n.nspowner))
              from pg_namespace n where n.nspname = 'postrider'
        ), granted (grantee, kind, text, privilege) as (
            select r.name, o.kind, o.text, a.privilege_type
              from object o cross join aclexplode(o.acl) a join role r on r.oid = a.grantee
        ), wanted (grantee, kind, text, privilege) as (
            select r.name, o.kind, o.text, unnest(w.privileges)
              from wish w join role r on r.role = w.role join object o on o.kind = w.kind and o.name = any (w.names)
        )
        select format('revoke %s on %s %s from %s', x.privilege, x.kind, x.text, x.grantee) as command
          from (select g.* from granted g except select w.* from wanted w) x
        union all
        select format('grant %s on %s %s to %s', x.privilege, x.kind, x.text, x.grantee)
          from (select w.* from wanted w except select g.* from granted g) x
    loop
        execute v_change.command;
    end loop;
end
$$;
comment on function postrider._grant() is
    'Gives PUBLIC nothing and each role of Postrider that exists what it may do. For the owner of the schema; part of every installation and upgrade.';

do $$
declare
    v_role text;
    v_missing text[] := '{}';
    v_lock_timeout constant text := pg_catalog.current_setting('lock_timeout');
begin
    foreach v_role in array array['postrider_emitter', 'postrider_worker', 'postrider_operator', 'postrider_reader'] loop
        continue when exists (select from pg_catalog.pg_roles r where r.rolname = v_role);
        begin
            -- A short lock_timeout keeps emits from queueing; no emit queues behind the name of a new role.
            perform pg_catalog.set_config('lock_timeout', '60s', true);
            execute pg_catalog.format('create role %I nologin', v_role);
        exception
            when duplicate_object or unique_violation then
                null; -- made meanwhile
            when insufficient_privilege then
                v_missing := v_missing || v_role;
        end;
        perform pg_catalog.set_config('lock_timeout', v_lock_timeout, true);
    end loop;
    if pg_catalog.cardinality(v_missing) > 0 then
        raise notice '% may not create roles: for now, only the owner of the schema postrider can use it', current_user
            using hint = 'Let an administrator run: '
                || (select pg_catalog.string_agg(pg_catalog.format('create role %I nologin;', m.role), ' ')
                      from pg_catalog.unnest(v_missing) m (role))
                || ' Then, as the owner of the schema: select postrider._grant();';
    end if;
    perform postrider._grant();
end
$$;
