//! Every SQL text of the schema, in the order in which it is applied.

macro_rules! file {
    ($folder:literal, $name:literal) => {
        (
            $name,
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/",
                $folder,
                "/",
                $name
            )),
        )
    };
}

/// Migrations: tables and whatever holds data or takes a table lock. Append-only; a file that was
/// released is never edited.
pub const MIGRATIONS: &[(&str, &str)] = &[
    file!("migrations", "V1__policies.sql"),
    file!("migrations", "V2__endpoints.sql"),
    file!("migrations", "V3__events.sql"),
    file!("migrations", "V4__deliveries.sql"),
    file!("migrations", "V5__workers.sql"),
];

/// Restatable SQL: functions, views, comments, grants. Applied as a whole when anything changed.
pub const SQL: &[(&str, &str)] = &[
    file!("sql", "clock.sql"),
    file!("sql", "errors.sql"),
    file!("sql", "durable.sql"),
    file!("sql", "event_types.sql"),
    file!("sql", "plans.sql"),
    file!("sql", "mark.sql"),
    file!("sql", "lock.sql"),
    file!("sql", "low_keys.sql"),
    file!("sql", "outbox_head.sql"),
    file!("sql", "outbox_sweep.sql"),
    file!("sql", "url.sql"),
    file!("sql", "headers.sql"),
    file!("sql", "secrets.sql"),
    file!("sql", "latency.sql"),
    file!("sql", "backoff.sql"),
    file!("sql", "uuid.sql"),
    file!("sql", "emit.sql"),
    file!("sql", "notify.sql"),
    file!("sql", "partitions.sql"),
    file!("sql", "subscribers.sql"),
    file!("sql", "fan_out.sql"),
    file!("sql", "workers.sql"),
    file!("sql", "claim.sql"),
    file!("sql", "release.sql"),
    file!("sql", "expire.sql"),
    file!("sql", "fetch.sql"),
    file!("sql", "fetch_due.sql"),
    file!("sql", "settle.sql"),
    file!("sql", "ladder.sql"),
    file!("sql", "stats.sql"),
    file!("sql", "report.sql"),
    file!("sql", "retention.sql"),
    file!("sql", "maintain.sql"),
    file!("sql", "endpoint.sql"),
    file!("sql", "create_endpoint.sql"),
    file!("sql", "update_endpoint.sql"),
    file!("sql", "delete_endpoint.sql"),
    file!("sql", "pause_endpoint.sql"),
    file!("sql", "resume_endpoint.sql"),
    file!("sql", "disable_endpoint.sql"),
    file!("sql", "enable_endpoint.sql"),
    file!("sql", "rotate_secret.sql"),
    file!("sql", "dismiss_alert.sql"),
    file!("sql", "send_test_event.sql"),
    file!("sql", "replay_delivery.sql"),
    file!("sql", "retry_preview.sql"),
    file!("sql", "deliveries.sql"),
    file!("sql", "event_status.sql"),
    file!("sql", "endpoint_health.sql"),
    file!("sql", "queue_depth.sql"),
    file!("sql", "grants.sql"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn on_disk(folder: &str) -> Vec<String> {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".sql")).collect();
        names.sort();
        names
    }

    fn listed(list: &[(&str, &str)]) -> Vec<String> {
        let mut names: Vec<String> = list.iter().map(|(name, _)| (*name).to_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn every_file_is_listed_once_under_its_own_name() {
        for (folder, list) in [("migrations", MIGRATIONS), ("sql", SQL)] {
            assert_eq!(
                on_disk(folder),
                listed(list),
                "{folder}/ against src/schema/manifest.rs"
            );
            for (name, text) in list {
                let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join(folder)
                    .join(name);
                assert_eq!(std::fs::read_to_string(path).unwrap(), *text, "{name}");
            }
        }
    }

    #[test]
    fn migrations_are_versioned_and_in_order() {
        for (i, (name, _)) in MIGRATIONS.iter().enumerate() {
            assert!(
                name.starts_with(&format!("V{}__", i + 1)),
                "{name} is at place {}",
                i + 1
            );
        }
    }

    #[test]
    fn grants_come_last() {
        if let Some((last, _)) = SQL.last() {
            assert_eq!(*last, "grants.sql");
        }
    }
}
