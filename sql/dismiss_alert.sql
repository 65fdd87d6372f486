-- dismiss_alert: a person has seen an alert. It changes nothing else.
--
-- Locks: the alert's row.

create or replace function postrider.dismiss_alert(alert_id bigint) returns void
language plpgsql security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform postrider._require_read_committed();
    update postrider.alerts a set dismissed_at = postrider.now()
     where a.id = dismiss_alert.alert_id and a.dismissed_at is null;
    if not found and not exists (select from postrider.alerts a where a.id = dismiss_alert.alert_id) then
        perform postrider._fail('PR022', format('there is no alert %s', coalesce(dismiss_alert.alert_id::text, 'null')),
            'postrider.alerts lists them; dismissed ones are kept as long as events.');
    end if;
end
$$;
comment on function postrider.dismiss_alert(bigint) is
    'Marks an alert as seen. It does not enable the endpoint; enable_endpoint does, and dismisses its alerts.';
