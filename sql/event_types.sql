-- Event types and the patterns that match them. Locks: none.
--
-- The two tests are inlined into the statements that call them, emit's among them, and a function with a `set`
-- clause never is; every name in them is qualified instead.

create or replace function postrider._is_event_type(event_type text) returns boolean
language sql immutable parallel safe
as $$
    -- As ^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$ says, for a tenth of what matching it costs an emit.
    select pg_catalog.length(event_type) operator(pg_catalog.<=) 128
       and pg_catalog.translate(event_type collate "C", 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.', '')
           operator(pg_catalog.=) ''
       and pg_catalog.strpos('.' operator(pg_catalog.||) event_type collate "C" operator(pg_catalog.||) '.', '..') operator(pg_catalog.=) 0
$$;
comment on function postrider._is_event_type(text) is
    'Whether a text is an event type: dot-separated parts of letters, digits, "_" and "-", at most 128 characters.';

create or replace function postrider._is_pattern(pattern text) returns boolean
language sql immutable parallel safe
as $$
    -- As long as an event type: a longer one would match none.
    select pg_catalog.length(pattern) operator(pg_catalog.<=) 128
       and pattern operator(pg_catalog.~) '^(\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?)$'
$$;
comment on function postrider._is_pattern(text) is
    'Whether a text is a subscription pattern: *, an event type, or the beginning of one followed by .*.';

create or replace function postrider._patterns(event_type text) returns text[]
language plpgsql immutable strict parallel safe
set search_path to pg_catalog, pg_temp
as $$
declare
    v_patterns text[] := array['*'];
    v_prefix text := '';
    v_part text;
begin
    foreach v_part in array string_to_array(event_type, '.') loop
        if v_prefix <> '' then
            v_patterns := v_patterns || (v_prefix || '.*');
            v_prefix := v_prefix || '.';
        end if;
        v_prefix := v_prefix || v_part;
    end loop;
    return v_patterns || event_type;
end
$$;
comment on function postrider._patterns(text) is
    'The patterns that match an event type: invoice.paid.late is matched by *, invoice.*, invoice.paid.* and itself. invoice.* does not match invoice.';

create or replace function postrider._check_patterns(patterns text[]) returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    v_wrong text;
begin
    if patterns is null or cardinality(patterns) > 1000 then
        perform postrider._fail('PR016', 'event_types must be an array of at most 1000 patterns',
            'Subscribe to everything with {*}, or to a family such as invoice.* with one pattern.');
    end if;
    if exists (select from unnest(patterns) u (pattern) where u.pattern is null or not postrider._is_pattern(u.pattern)) then
        select u.pattern into v_wrong from unnest(patterns) u (pattern)
         where u.pattern is null or not postrider._is_pattern(u.pattern) limit 1;
        perform postrider._fail('PR016', format('invalid event type pattern %L', left(v_wrong, 200)),
            'A pattern is *, an event type such as invoice.paid, or the beginning of one followed by .*, such as invoice.*.');
    end if;
end
$$;
comment on function postrider._check_patterns(text[]) is
    'Refuses event_types that hold anything but patterns (PR016). An empty array is no subscription: only what names the endpoint reaches it.';
