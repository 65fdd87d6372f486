-- Signing secrets: whsec_ and the base64 of 24 to 64 bytes. Locks: none.

create or replace function postrider._check_secret(secret text) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_base64 constant text := substr(secret, 7);
    v_key bytea;
begin
    if secret ~ '^whsec_[A-Za-z0-9+/]{32,86}={0,2}$' then
        begin
            v_key := decode(v_base64, 'base64');
        exception when invalid_parameter_value then
            v_key := null;
        end;
    end if;
    -- Encoding again must give the same text: one key has one spelling, which both signature styles read.
    if v_key is null or octet_length(v_key) not between 24 and 64
       or translate(encode(v_key, 'base64'), E'\n', '') <> v_base64
    then
        -- The message never repeats the secret: it goes to logs.
        perform postrider._fail('PR014', 'the secret is not whsec_ followed by the padded base64 of 24 to 64 bytes',
            'Leave it out to have one made. No blank, line break or other prefix may be part of it.');
    end if;
end
$$;
comment on function postrider._check_secret(text) is
    'Refuses whatever is not a signing secret in its one spelling (PR014).';

-- 32 random bytes without pgcrypto, which not every server has: each uuid v4 holds 122 bits of the server's
-- strong random source; three hold 366, and SHA-256 makes 256 even ones of them.
create or replace function postrider._new_secret() returns text
language sql volatile
set search_path to pg_catalog, pg_temp
as $$
    select 'whsec_' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
                                     || uuid_send(gen_random_uuid())), 'base64')
$$;
comment on function postrider._new_secret() is
    'A new signing secret of 32 random bytes.';
