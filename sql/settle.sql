-- Settle: what one attempt makes of its delivery. Pure judgement; report_attempts acts on it.

create or replace function postrider._judge(
    http_status integer, error_code text, failures integer, max_attempts integer, retry_statuses int4multirange
) returns text
language sql immutable parallel safe
as $$
    select case
        when http_status between 200 and 299 then 'delivered'
        when http_status = 429 then 'rate_limited'
        -- What no repetition changes: a refused address, a request that cannot be built, a report that
        -- the database refuses.
        when error_code in ('address_refused', 'bad_request', 'unreportable') then 'rejected'
        when http_status is not null and not retry_statuses @> http_status then 'rejected'
        when failures + 1 >= max_attempts then 'exhausted'
        else 'retry'
    end
$$;
comment on function postrider._judge(integer, text, integer, integer, int4multirange) is
    'What becomes of a delivery by an attempt: delivered, rate_limited, rejected, exhausted or retry; failures are those before this attempt. An http_status of null means no answer came.';

create or replace function postrider._reason(outcome text, http_status integer, error_code text, failures integer)
returns text
language sql stable parallel safe
as $$
    select case outcome
        when 'delivered' then null
        when 'rejected' then case
            when error_code = 'address_refused' then 'the address is one Postrider does not connect to'
            when error_code = 'bad_request' then 'the request could not be built'
            when error_code = 'unreportable' then 'the outcome could not be stored'
            else pg_catalog.format('answer %s will not change by a retry', http_status) end
        when 'exhausted' then pg_catalog.format('failed %s times, as often as the policy tries', failures + 1)
    end
$$;
comment on function postrider._reason(text, integer, text, integer) is
    'Why a delivery ended, for people.';

create or replace function postrider._pause(
    http_status integer, wait interval, pause_default interval, pause_min interval, pause_max interval, pause_on_503 boolean
) returns interval
language sql immutable parallel safe
as $$
    select case
        when http_status = 429 or (http_status = 503 and pause_on_503 and wait is not null)
        then least(greatest(coalesce(wait, pause_default), pause_min), pause_max)
    end
$$;
comment on function postrider._pause(integer, interval, interval, interval, interval, boolean) is
    'How long an answer stops its whole endpoint, counted from the answer; null: not at all.';
