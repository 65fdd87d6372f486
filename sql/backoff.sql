-- Backoff: the delay before retry n. Locks: none.

create or replace function postrider._backoff(base interval, factor numeric, cap interval, n integer) returns interval
language plpgsql immutable strict parallel safe
set search_path to pg_catalog, pg_temp
as $$
declare
    v_base constant double precision := extract(epoch from base);
    v_cap constant double precision := extract(epoch from cap);
    v_factor constant double precision := greatest(factor, 1);
    v_power constant double precision := greatest(n, 1)::double precision - 1;
begin
    if v_base <= 0 or v_cap <= 0 then
        return interval '0';
    end if;
    -- Compared as logarithms, since factor^(n-1) has no bound and raises an error instead of being large.
    if v_base >= v_cap or v_power * ln(v_factor) >= ln(v_cap / v_base) then
        return make_interval(secs => v_cap);
    end if;
    return make_interval(secs => least(v_cap, v_base * power(v_factor, v_power)));
end
$$;
comment on function postrider._backoff(interval, numeric, interval, integer) is
    'The delay before retry n, before jitter: least(cap, base * factor^(n-1)). n below 1 is taken as 1; no n overflows, and a later retry never has a shorter delay.';

create or replace function postrider._retry_delay(
    base interval, factor numeric, cap interval, jitter text, n integer
) returns interval
language plpgsql volatile strict parallel restricted
set search_path to pg_catalog, pg_temp
as $$
begin
    return postrider._backoff(base, factor, cap, n) * case jitter when 'full' then random() else 1 end;
end
$$;
comment on function postrider._retry_delay(interval, numeric, interval, text, integer) is
    'The delay before retry n as a policy has it: with jitter full, a random one between zero and that.';
