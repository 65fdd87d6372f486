-- retry_preview: what a policy's numbers mean in hours. Locks: none.

create or replace function postrider.retry_preview(policy text)
returns table (attempt integer, earliest interval, mean interval, latest interval)
language plpgsql stable security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform postrider._check_policy(retry_preview.policy);
    return query
        select d.attempt,
               case p.backoff_jitter when 'full' then interval '0' else d.latest end,
               case p.backoff_jitter when 'full' then d.latest / 2 else d.latest end,
               d.latest
          from postrider.policies p
         cross join lateral (
               select a.attempt,
                      sum(case when a.attempt = 1 then interval '0'
                               else postrider._backoff(p.backoff_base, p.backoff_factor, p.backoff_cap, a.attempt - 1) end)
                          over (order by a.attempt) as latest
                 from generate_series(1, least(p.max_attempts, 1000)) a (attempt)) d
         where p.name = retry_preview.policy
         order by d.attempt;
end
$$;
comment on function postrider.retry_preview(text) is
    'When each attempt begins, counted from the first, if every one fails at once: with full jitter at the earliest, on average and at the latest. Pauses come on top, and the time to live ends it. At most 1,000 attempts are shown.';
