-- The URL of an endpoint: only what the worker can parse and send to is stored. Where a request may go is
-- judged again when it connects, on the address dialled; a text cannot tell. Locks: none.

create or replace function postrider._check_url(url text) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_parts text[];
    v_host text;
    v_port text;
    v_problem text;
begin
    -- Scheme, authority, the rest. The longest possible authority ends at the first of / ? #.
    v_parts := regexp_match(url, '^(https?)://([^/?#]*)(.*)$');
    v_host := v_parts[2];
    v_problem := case
        when url is null then 'is null'
        when length(url) > 2048 then 'is longer than 2048 characters'
        when url ~ '[^!-~]' then 'holds a blank, a control character or a character outside ASCII'
        when v_parts is null then 'does not start with https:// or http://'
        when v_host ~ '@' then 'holds a user name or password'
        when url ~ '#' then 'holds a fragment'
        when url ~ '%(?![0-9A-Fa-f]{2})' then 'holds a "%" that is not followed by two hexadecimal digits'
        -- RFC 3986: unreserved, sub-delims, and ":" "@" "/" "?" "%".
        when v_parts[3] !~ '^[A-Za-z0-9._~!$&''()*+,;=:@/?%-]*$' then 'holds a character that must be percent-encoded'
    end;
    if v_problem is null then
        v_port := substring(v_host from ':([^]:]*)$');
        if v_port is not null then
            v_host := left(v_host, -1 - length(v_port));
        end if;
        v_problem := case
            when not (v_port ~ '^[0-9]{1,5}$' and v_port::integer between 1 and 65535) then 'has a port that is not between 1 and 65535'
            when not postrider._is_host(v_host) then format('has no usable host (%L)', v_host)
            when v_parts[1] = 'http' and not (select s.allow_http from postrider.settings s)
                then 'is http, and this installation sends to https only'
        end;
    end if;
    if v_problem is not null then
        perform postrider._fail('PR011', format('the URL %L %s', left(url, 200), v_problem),
            case when v_problem like 'is http,%' then 'Use https; for development set postrider.settings.allow_http.'
                 else 'A URL looks like https://example.com/hook; credentials belong in headers.' end);
    end if;
end
$$;
comment on function postrider._check_url(text) is
    'Refuses a URL that could not be sent to (PR011).';

create or replace function postrider._is_host(host text) returns boolean
language plpgsql immutable strict parallel safe
set search_path to pg_catalog, pg_temp
as $$
declare
    v_ipv4 constant text := '(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}';
begin
    if host ~ '^\[[0-9A-Fa-f:.]+\]$' then
        -- inet also takes an embedded IPv4 address with parts left out, which no client dials.
        return family(btrim(host, '[]')::inet) = 6
           and (host !~ '\.' or host ~ (':' || v_ipv4 || '\]$'));
    end if;
    -- A last part that is a number makes it an IPv4 address; short, octal and hexadecimal spellings of those
    -- exist to get past checks.
    if host ~ '(^|\.)([0-9]+|0[xX][0-9A-Fa-f]*)$' then
        return host ~ ('^' || v_ipv4 || '$');
    end if;
    return length(host) <= 253
       and host ~ '^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$';
exception when invalid_text_representation then
    return false;
end
$$;
comment on function postrider._is_host(text) is
    'Whether a text is a host name, an IPv4 address in the usual spelling, or an IPv6 address in brackets.';
