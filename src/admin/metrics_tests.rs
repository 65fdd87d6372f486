use super::*;

#[test]
fn names_have_prefix_and_unit() {
    let metrics = Metrics::default();
    metrics.attempt("delivered", Duration::from_millis(3), Duration::ZERO);
    metrics.db_call("claim", Duration::from_millis(1), false);
    let text = metrics.text();
    for line in [
        "postrider_delivery_attempts_total{outcome=\"delivered\"} 1",
        "postrider_delivery_duration_seconds_count 1",
        "postrider_db_errors_total{call=\"claim\"} 1",
        "postrider_inflight_requests 0",
        concat!(
            "postrider_build_info{version=\"",
            env!("CARGO_PKG_VERSION"),
            "\"} 1"
        ),
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}
#[test]
fn figures_of_the_installation_are_absent_while_unknown() {
    let metrics = Metrics::default();
    assert!(!metrics.text().contains("postrider_deliveries_pending{"));
    let depth = crate::inspect::Depth {
        due: 2,
        later: 3,
        ..Default::default()
    };
    metrics.installation(Some(&depth));
    let text = metrics.text();
    for line in [
        "postrider_deliveries_pending{} 5",
        "postrider_oldest_due_age_seconds{} 0.0",
        "postrider_endpoints{state=\"active\"} 0",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    metrics.installation(None);
    assert!(!metrics.text().contains("postrider_deliveries_pending{"));
}
