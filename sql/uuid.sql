-- uuid v7 (RFC 9562): 48 bits of milliseconds, then in rand_a the fraction of the millisecond in 1/4096,
-- so that ids of one session sort as they were made and a day is a range of ids.

-- Inlined into emit, so without a `set` clause; parsed where it is created, so no search path matters.
create or replace function postrider._uuid_v7(at timestamptz) returns uuid
language sql volatile parallel safe
return encode(
    int8send((((date_part('epoch', at) * 1000000)::bigint / 1000) << 16) | 28672  -- 0x7000: the version
             | ((date_part('epoch', at) * 1000000)::bigint % 1000 * 4096 / 1000))
    || substr(uuid_send(gen_random_uuid()), 9), 'hex')::uuid;
comment on function postrider._uuid_v7(timestamptz) is
    'A new uuid v7 for this moment.';

create or replace function postrider._uuid_floor(at timestamptz) returns uuid
language sql immutable parallel safe strict
set search_path to pg_catalog, pg_temp
as $$
    select (lpad(to_hex(greatest((extract(epoch from at) * 1000)::bigint, 0)), 12, '0') || repeat('0', 20))::uuid
$$;
comment on function postrider._uuid_floor(timestamptz) is
    'The lowest id that a uuid v7 of this millisecond can have: a bound for ranges of ids.';

create or replace function postrider._uuid_time(id uuid) returns timestamptz
language sql immutable parallel safe strict
set search_path to pg_catalog, pg_temp
as $$
    select to_timestamp((('x' || lpad(substr(replace(id::text, '-', ''), 1, 12), 16, '0'))::bit(64)::bigint) / 1000.0)
$$;
comment on function postrider._uuid_time(uuid) is
    'The millisecond in a uuid v7.';
