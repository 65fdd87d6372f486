//! G12: a Retry-After read wrongly turns a pause into a hammer, or into years. Every form in which an answer
//! may ask for a pause.

use std::time::{Duration, SystemTime};

use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::LIMIT;
use crate::fixtures::world::World;

type Headers = Vec<(&'static str, String)>;

/// `DATE` and `EPOCH` stand for a time so many seconds after the answer.
fn at_the_answer(value: &str) -> String {
    let ahead = |seconds: &str| SystemTime::now() + Duration::from_secs(seconds.parse().unwrap());
    if let Some(seconds) = value.strip_prefix("DATE") {
        httpdate::fmt_http_date(ahead(seconds))
    } else if let Some(seconds) = value.strip_prefix("EPOCH") {
        let epoch = ahead(seconds).duration_since(SystemTime::UNIX_EPOCH);
        epoch.unwrap().as_secs().to_string()
    } else {
        value.to_owned()
    }
}

/// Headers of the answer, and the pause in seconds they mean.
fn forms() -> Vec<(Headers, f64)> {
    let retry_after = |text: &str| vec![("Retry-After", text.to_owned())];
    let mut forms: Vec<(Headers, f64)> = Vec::new();
    for text in ["7", "  7  ", "007"] {
        forms.push((retry_after(text), 7.0));
    }
    forms.push((retry_after("0"), 1.0));
    forms.push((retry_after("DATE20"), 20.0));
    let nines = "9".repeat(40);
    let century = "Fri, 31 Dec 9999 23:59:59 GMT";
    for text in ["86400000", "9223372036854775808", &nines, century] {
        forms.push((retry_after(text), 86_400.0));
    }
    let past = httpdate::fmt_http_date(SystemTime::now() - Duration::from_secs(3600));
    for text in ["-5", "+5", "1.5", "7s", "abc", "", "7, 9", "1e3", &past] {
        forms.push((retry_after(text), 60.0));
    }
    forms.push((Vec::new(), 60.0));
    let reset = |text: &str| ("RateLimit-Reset", text.to_owned());
    let x_reset = |text: &str| ("X-RateLimit-Reset", text.to_owned());
    forms.push((vec![reset("12")], 12.0));
    forms.push((vec![x_reset("13")], 13.0));
    forms.push((vec![x_reset("EPOCH30")], 30.0));
    forms.push((vec![x_reset("13"), reset("12")], 12.0));
    forms.push((vec![x_reset("13"), reset("soon")], 13.0));
    let mut both = vec![reset("12")];
    both.extend(retry_after("15"));
    forms.push((both, 15.0));
    let mut unusable = vec![reset("12")];
    unusable.extend(retry_after("later"));
    forms.push((unusable, 12.0));
    forms
}

/// How long the first answer paused its endpoint, in seconds; a pause counts from the answer.
async fn pause(world: &World, event: uuid::Uuid, endpoint: i64) -> f64 {
    let sql = "select extract(epoch from s.rate_limited_until - a.started_at - a.duration_ms * interval '1 ms')::float8
                 from postrider.endpoint_state s join postrider.attempts a using (endpoint_id)
                where endpoint_id = $1 and event_id = $2 and number = 1";
    eventually(LIMIT, async || {
        let row = world
            .sql
            .query_opt(sql, &[&endpoint, &event])
            .await
            .unwrap()?;
        row.get::<_, Option<f64>>(0)
    })
    .await
}

#[tokio::test]
async fn g12_the_pause_is_the_time_the_answer_names() {
    let forms = forms();
    let answers: Vec<Headers> = forms.iter().map(|(headers, _)| headers.clone()).collect();
    let mut world = World::new(move |request, _| {
        let mut reply = Reply::status(429);
        if let Ok(form) = request.path[1..].parse::<usize>() {
            for (name, value) in &answers[form] {
                reply = reply.header(name, at_the_answer(value));
            }
            return reply;
        }
        // Two fields: the longest, as the README says.
        reply.header("Retry-After", 3).header("Retry-After", 70)
    })
    .await;
    let mut endpoints = Vec::new();
    for form in 0..forms.len() {
        endpoints.push(world.endpoint(&format!("/{form}"), "").await);
    }
    let two = world.endpoint("/two", "").await;
    world.worker();
    let event = world.emit("a").await;
    let mut wrong = Vec::new();
    for ((headers, wanted), endpoint) in forms.iter().zip(&endpoints) {
        let found = pause(&world, event, *endpoint).await;
        // Dates have whole seconds. The floor may already have been met again.
        let absolute = |value: &str| value.starts_with("DATE") || value.starts_with("EPOCH");
        let slack = if headers.iter().any(|(_, v)| absolute(v)) {
            1.1
        } else {
            0.2
        };
        if (found - wanted).abs() > slack && !(*wanted == 1.0 && found >= 1.0) {
            wrong.push(format!("{headers:?}: {wanted} wanted, {found}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let both = pause(&world, event, two).await;
    assert!((both - 70.0).abs() < 0.2, "{both}");
    let failed: i64 = world
        .one(
            "select count(*) from postrider.endpoint_state where failures > 0",
            &[],
        )
        .await;
    assert_eq!(failed, 0);
}

/// The obsolete date forms, which a receiver may still send.
#[tokio::test]
async fn g12_the_obsolete_date_forms_are_read() {
    // IMF-fixdate of the same moment, taken apart: "Sun, 06 Nov 1994 08:49:37 GMT".
    let mut world = World::new(|request, _| {
        let date = at_the_answer("DATE20");
        let parts: Vec<&str> = date.split([' ', ',']).filter(|p| !p.is_empty()).collect();
        let [day, date, month, year, time, _] = parts[..] else {
            panic!("{parts:?}");
        };
        let full = ["Mon", "Tues", "Wednes", "Thurs", "Fri", "Satur", "Sun"];
        let full = full.iter().find(|d| d.starts_with(day)).unwrap();
        let short = &year[2..];
        let date = match request.path.as_str() {
            "/rfc850" => format!("{full}day, {date}-{month}-{short} {time} GMT"),
            _ => format!(
                "{day} {month} {:>2} {time} {year}",
                date.trim_start_matches('0')
            ),
        };
        Reply::status(429).header("Retry-After", date)
    })
    .await;
    let rfc850 = world.endpoint("/rfc850", "").await;
    let asctime = world.endpoint("/asctime", "").await;
    world.worker();
    let event = world.emit("a").await;
    for endpoint in [rfc850, asctime] {
        let pause = pause(&world, event, endpoint).await;
        assert!((18.9..20.1).contains(&pause), "{endpoint}: {pause}");
    }
}
