-- Latency histograms: one array per endpoint and hour, an element per bound and a last one for all above.
-- Locks: none. Inlined where they can be, hence without a `set` clause; every name is qualified.

create or replace function postrider._latency_bounds() returns integer[]
language sql immutable parallel safe
as $$ select '{1,2,5,10,20,50,100,200,500,1000,2000,5000,10000,30000}'::pg_catalog.int4[] $$;
comment on function postrider._latency_bounds() is
    'Upper bounds of the latency buckets in milliseconds; a histogram has one element more, for what is above them all.';

create or replace function postrider._latency_bucket(ms integer) returns integer
language sql immutable strict parallel safe
as $$
    -- width_bucket counts the bounds at or below its operand; the bucket of ms holds what is up to its bound.
    select 1 operator(pg_catalog.+) pg_catalog.width_bucket(ms operator(pg_catalog.-) 1,
        '{1,2,5,10,20,50,100,200,500,1000,2000,5000,10000,30000}'::pg_catalog.int4[])
$$;
comment on function postrider._latency_bucket(integer) is
    'The element of a latency histogram that a duration counts in, from 1.';

create or replace function postrider._latency_quantile(hist bigint[], q numeric) returns integer
language plpgsql immutable strict parallel safe
set search_path to pg_catalog, pg_temp
as $$
declare
    v_bounds constant integer[] := postrider._latency_bounds();
    v_total numeric := 0;
    v_before numeric := 0;
    v_low integer;
begin
    for i in 1 .. cardinality(hist) loop
        v_total := v_total + coalesce(hist[i], 0);
    end loop;
    if v_total = 0 then
        return null;
    end if;
    for i in 1 .. cardinality(hist) loop
        if hist[i] > 0 and v_before + hist[i] >= v_total * q then
            v_low := case when i = 1 then 0 else v_bounds[i - 1] end;
            -- In proportion between the bounds; above the last there is none to go by.
            return ceil(v_low + (coalesce(v_bounds[i], v_low) - v_low) * (v_total * q - v_before) / hist[i]);
        end if;
        v_before := v_before + coalesce(hist[i], 0);
    end loop;
    return v_bounds[cardinality(v_bounds)];
end
$$;
comment on function postrider._latency_quantile(bigint[], numeric) is
    'The quantile q (0.5: the median) of a latency histogram in milliseconds, interpolated within its bucket; 30000 for what is above all bounds, null without data.';
