-- rotate_secret: a new signing secret, next to which the old ones sign until the overlap ends.
--
-- Locks: the endpoint and its state.

create or replace function postrider.rotate_secret(
    endpoint_id bigint, overlap interval default '24 hours', secret text default null
) returns text
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
    v_secret text := rotate_secret.secret;
begin
    perform postrider._require_read_committed();
    if rotate_secret.overlap is null or rotate_secret.overlap not between interval '0' and interval '30 days' then
        perform postrider._fail('PR018', format('overlap %s is not between 0 and 30 days', coalesce(rotate_secret.overlap::text, 'null')),
            'The old secret signs along until the overlap ends; 0 ends it at once.');
    end if;
    if v_secret is null then
        v_secret := postrider._new_secret();
    else
        perform postrider._check_secret(v_secret);
    end if;
    perform postrider._lock_endpoint(rotate_secret.endpoint_id);
    v_now := postrider.now();
    if exists (select from postrider.endpoint_secrets s
                where s.endpoint_id = rotate_secret.endpoint_id and s.secret = v_secret
                  and (s.expires_at is null or s.expires_at > v_now)) then
        perform postrider._fail('PR014', 'the secret is one of the endpoint''s already',
            'Leave it out to have a new one made.');
    end if;

    -- Never lengthened: who once said when a secret ends may rely on it.
    update postrider.endpoint_secrets s
       set expires_at = v_now + rotate_secret.overlap
     where s.endpoint_id = rotate_secret.endpoint_id
       and (s.expires_at is null or s.expires_at > v_now + rotate_secret.overlap);
    insert into postrider.endpoint_secrets (endpoint_id, secret, created_at)
    values (rotate_secret.endpoint_id, v_secret, v_now);
    if (select count(*) from postrider.endpoint_secrets s
         where s.endpoint_id = rotate_secret.endpoint_id and (s.expires_at is null or s.expires_at > v_now)) > 5 then
        perform postrider._fail('PR014', format('endpoint %s would have more than 5 valid secrets', rotate_secret.endpoint_id),
            'Each of them signs every request. Wait for one to end, or give a shorter overlap.');
    end if;
    perform postrider._wake_for(rotate_secret.endpoint_id);
    return v_secret;
end
$$;
comment on function postrider.rotate_secret(bigint, interval, text) is
    'Gives an endpoint a new signing secret and returns it. The old ones sign along until the overlap ends, the newest first; one that was to end sooner does.';
