//! Random answers, near the edge of what is valid, from the wire to the database.

use proptest::prelude::*;

use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::LIMIT;
use crate::fixtures::world::World;
use crate::fuzz::samples;

/// An answer, more or less.
fn answers() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        "[0-9]{0,25}",
        "[-+]?[0-9]{1,4}(\\.[0-9])?",
        "(Mon|Thu), [0-9]{2} (Jan|Feb|Dec) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
        "chunked|gzip|close|keep-alive|https://a\\.example/",
        "[ -~]{0,40}",
        "\\PC{0,10}",
    ];
    let name = prop_oneof![
        "Retry-After|RateLimit-Reset|X-RateLimit-Reset|Location|Connection|X",
        "Content-Length|Transfer-Encoding|Upgrade|Content-Type",
        "[!-~]{0,10}",
    ];
    let header = (name, value).prop_map(|(name, value)| format!("{name}: {value}\r\n"));
    let status = prop_oneof!["200|204|302|404|429|429|500|503", "[0-9]{3}", "[ -~]{0,5}"];
    let head = (status, "[ -~]{0,10}", prop::collection::vec(header, 0..6));
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        Just(b"4\r\nabcd\r\n0\r\n\r\n".to_vec()),
        Just(b"ffffffffffffffffff\r\nx".to_vec()),
        Just("ä\u{0}\u{202e}\u{1f600}".as_bytes().to_vec()),
    ];
    let whole = (head, body).prop_map(|((status, reason, headers), body)| {
        let head = format!("HTTP/1.1 {status} {reason}\r\n{}\r\n", headers.concat());
        [head.into_bytes(), body].concat()
    });
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let damaged = (whole.clone(), damage, any::<prop::sample::Index>());
    let damaged = damaged.prop_map(|(mut bytes, changes, end)| {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len()) + 1);
        bytes
    });
    prop_oneof![5 => whole, 3 => damaged, 1 => prop::collection::vec(any::<u8>(), 0..80)]
}

/// Whatever a receiver answers, its delivery gets one attempt, which is stored, and a pause that is asked for
/// lies within the policy's bounds.
#[tokio::test]
async fn whatever_is_answered_is_stored() {
    const ENDPOINTS: usize = 400;
    let answers = samples(ENDPOINTS, answers());
    let given = answers.clone();
    let mut world = World::new(move |request, _| match request.path[1..].parse::<usize>() {
        Ok(n) => Reply::Raw(given[n].clone()),
        Err(_) => Reply::status(200),
    })
    .await;
    let once = r#"{"max_attempts": 1, "request_timeout": "2 s", "connect_timeout": "2 s", "pause_on_503": true}"#;
    world.quick_policy("once", once).await;
    let port = world.receiver.address().port();
    world
        .run(&format!(
            "select postrider.create_endpoint(url => 'http://127.0.0.1:{port}/' || n, policy => 'once')
             from generate_series(0, {ENDPOINTS} - 1) n"
        ))
        .await;
    world.worker();
    let event = world.emit("a").await;
    let stored = "select count(*) from postrider.attempts where event_id = $1";
    eventually(LIMIT, async || {
        let count: i64 = world.one(stored, &[&event]).await;
        (count >= 400).then_some(())
    })
    .await;
    // A pause may end meanwhile, and then there is another; nothing else is tried twice.
    let sql = "select substring(url from '[0-9]+$'), string_agg(concat_ws(' ', t.outcome, t.http_status, t.error_code, t.error, t.answer), ' | ')
                 from postrider.attempts t join postrider.endpoints n on n.id = t.endpoint_id
                where t.event_id = $1 group by url
               having count(*) filter (where t.outcome <> 'rate_limited') > 1 or bool_or(t.stale)
                   or bool_or(t.error_code = 'unreportable') or bool_or(t.http_status is null and t.error_code is null)";
    if let Some(row) = world.sql.query(sql, &[&event]).await.unwrap().first() {
        let (n, found): (String, String) = (row.get(0), row.get(1));
        let answer = String::from_utf8_lossy(&answers[n.parse::<usize>().unwrap()]).into_owned();
        panic!("{answer:?} became {found:?}");
    }
    let pauses =
        "select count(*), count(*) filter (where rate_limited_until > now() + interval '1 day')
                  from postrider.endpoint_state where rate_limited_until is not null";
    let row = world.sql.query_one(pauses, &[]).await.unwrap();
    assert!(
        row.get::<_, i64>(0) > 0 && row.get::<_, i64>(1) == 0,
        "{row:?}"
    );
    let statuses = "select count(distinct http_status) from postrider.attempts";
    assert!(world.one::<i64>(statuses, &[]).await > 20);
    // The worker is as well as ever.
    let endpoint = world.endpoint("/well", "event_types => '{b}'").await;
    let event = world.emit("b").await;
    world.wait_for_status(event, endpoint, "delivered").await;
}
