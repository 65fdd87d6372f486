-- Additional request headers: nothing that could fail at send time, or take over a header that Postrider or
-- HTTP itself sets, is stored. Locks: none.

create or replace function postrider._check_headers(headers jsonb) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_header record;
    v_problem text;
    v_count integer := 0;
    v_size integer := 0;
    v_seen text[] := '{}';
begin
    if headers is null or jsonb_typeof(headers) <> 'object' then
        perform postrider._fail('PR013', 'headers must be a JSON object', 'Write {"Authorization": "Bearer …"}; {} for none.');
    end if;
    for v_header in select h.key as name, h.value as json, h.value #>> '{}' as value from jsonb_each(headers) h loop
        v_count := v_count + 1;
        v_size := v_size + octet_length(v_header.name) + octet_length(coalesce(v_header.value, '')) + 4;
        v_problem := case
            -- RFC 9110: a token.
            when v_header.name !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]+$' then 'its name is no header name'
            when lower(v_header.name) in ('host', 'content-length', 'content-encoding', 'transfer-encoding', 'connection',
                                          'keep-alive', 'te', 'trailer', 'upgrade', 'expect')
                or lower(v_header.name) like 'proxy-%' or lower(v_header.name) like 'webhook-%'
                then 'its name is reserved'
            when lower(v_header.name) = any (v_seen) then 'it is given twice, in upper and lower case'
            when jsonb_typeof(v_header.json) <> 'string' then 'its value is not a string'
            when v_header.value !~ '^([!-~]([ \t!-~]*[!-~])?)?$'
                then 'its value holds more than visible ASCII with blanks between'
        end;
        if v_problem is not null then
            perform postrider._fail('PR013', format('header %L is refused: %s', left(v_header.name, 200), v_problem),
                'Host, Content-Length, connection headers, Proxy-* and Webhook-* are Postrider''s own; a value is visible ASCII without blanks at its ends.');
        end if;
        v_seen := v_seen || lower(v_header.name);
    end loop;
    if v_count > 50 or v_size > 8192 then
        perform postrider._fail('PR013', format('%s headers of %s bytes are too many', v_count, v_size),
            'At most 50 headers and 8192 bytes of names and values.');
    end if;
end
$$;
comment on function postrider._check_headers(jsonb) is
    'Refuses headers that could not be sent, or that are not the operator''s to set (PR013).';
