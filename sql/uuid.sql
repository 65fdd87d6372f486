-- uuid v7 (RFC 9562): 48 bits of milliseconds, then in rand_a the fraction of the millisecond in 1/4096,
-- so that ids of one session sort as they were made and a day is a range of ids.

create or replace function postrider._uuid_v7(at timestamptz) returns uuid
language plpgsql volatile parallel safe
set search_path to pg_catalog, pg_temp
as $$
declare
    v_us constant bigint := extract(epoch from at) * 1000000;
begin
    return (lpad(to_hex(v_us / 1000), 12, '0') || '7' || lpad(to_hex((v_us % 1000) * 4096 / 1000), 3, '0')
            || substr(replace(gen_random_uuid()::text, '-', ''), 17))::uuid;
end
$$;
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
