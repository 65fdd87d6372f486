//! report: every form in which an answer may ask for a pause.

use std::time::{Duration, SystemTime};

use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::LIMIT;
use crate::fixtures::world::World;

type Headers = Vec<(&'static str, String)>;

/// Headers of the answer, and the pause in seconds they mean.
fn forms() -> Vec<(Headers, f64)> {
    let ahead = |seconds| SystemTime::now() + Duration::from_secs(seconds);
    let retry_after = |text: &str| vec![("Retry-After", text.to_owned())];
    let mut forms: Vec<(Headers, f64)> = Vec::new();
    for text in ["7", "  7  ", "007"] {
        forms.push((retry_after(text), 7.0));
    }
    forms.push((retry_after("0"), 1.0));
    forms.push((retry_after(&httpdate::fmt_http_date(ahead(20))), 20.0));
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
    let epoch = ahead(30).duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let epoch = epoch.as_secs().to_string();
    forms.push((vec![reset("12")], 12.0));
    forms.push((vec![x_reset("13")], 13.0));
    forms.push((vec![x_reset(&epoch)], 30.0));
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

#[tokio::test]
async fn the_pause_is_the_time_the_answer_names() {
    let forms = forms();
    let answers: Vec<Headers> = forms.iter().map(|(headers, _)| headers.clone()).collect();
    let mut world = World::new(move |request, _| {
        let mut reply = Reply::status(429);
        if let Ok(form) = request.path[1..].parse::<usize>() {
            for (name, value) in &answers[form] {
                reply = reply.header(name, value);
            }
            return reply;
        }
        // Two fields: one rule or another, but no crash and no pause outside the bounds.
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
    // From the end of the attempt, since a pause counts from the answer.
    let sql = "select extract(epoch from s.rate_limited_until - a.started_at - a.duration_ms * interval '1 ms')::float8
                 from postrider.endpoint_state s join postrider.attempts a using (endpoint_id)
                where endpoint_id = $1 and event_id = $2 and number = 1";
    let pause = async |endpoint: i64| {
        eventually(LIMIT, async || {
            let row = world
                .sql
                .query_opt(sql, &[&endpoint, &event])
                .await
                .unwrap()?;
            row.get::<_, Option<f64>>(0)
        })
        .await
    };
    let mut wrong = Vec::new();
    for ((headers, wanted), endpoint) in forms.iter().zip(&endpoints) {
        let found = pause(*endpoint).await;
        // Dates have whole seconds, and began before the answer was given. Those of a floor may already
        // have been met again.
        let slack = if headers.iter().any(|(_, v)| v.len() > 9) {
            3.0
        } else {
            0.2
        };
        if (found - wanted).abs() > slack && !(*wanted == 1.0 && found >= 1.0) {
            wrong.push(format!("{headers:?}: {wanted} wanted, {found}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let both = pause(two).await;
    assert!((1.0..=86_400.0).contains(&both), "{both}");
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
async fn all_three_date_forms_are_read() {
    // 20 s ahead in RFC 850 and asctime form, by the database's own calendar.
    let forms = ["FMDay, DD-Mon-YY HH24:MI:SS", "Dy Mon DD HH24:MI:SS YYYY"];
    let dates = std::sync::Arc::new(std::sync::Mutex::new(Vec::<String>::new()));
    let answers = dates.clone();
    let mut world = World::new(move |request, _| {
        let form: usize = request.path[1..].parse().unwrap();
        let date = answers.lock().unwrap()[form].clone();
        Reply::status(429).header("Retry-After", date)
    })
    .await;
    for (form, gmt) in forms.iter().zip([" GMT", ""]) {
        let sql = "select to_char((clock_timestamp() + interval '20 s') at time zone 'UTC', $1)";
        let text: String = world.one(sql, &[form]).await;
        dates.lock().unwrap().push(text + gmt);
    }
    let mut endpoints = Vec::new();
    for form in 0..forms.len() {
        endpoints.push(world.endpoint(&format!("/{form}"), "").await);
    }
    world.worker();
    world.emit("a").await;
    for (endpoint, form) in endpoints.iter().zip(forms) {
        let sql = "select extract(epoch from rate_limited_until - clock_timestamp())::float8
                     from postrider.endpoint_state where endpoint_id = $1";
        let pause = eventually(LIMIT, async || {
            world.one::<Option<f64>>(sql, &[endpoint]).await
        })
        .await;
        assert!((15.0..21.0).contains(&pause), "{form}: {pause}");
    }
}
