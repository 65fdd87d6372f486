//! G26: an endpoint's own headers can neither add to a request what its owner may not set, nor be stored and
//! then fail every send; and an event type cannot carry a header in.

use hyper::header::{HeaderName, HeaderValue};

use crate::fixtures::http::Reply;
use crate::fixtures::postgres::TestDb;
use crate::fixtures::sql::{one, refused, run};
use crate::fixtures::world::World;
use crate::input::{refuses, refuses_in_both};

#[tokio::test]
async fn g26_what_could_not_be_sent_or_takes_over_is_refused() {
    let many = format!(
        "(select jsonb_object_agg('x-' || n, 'y') from generate_series(1, {}) n)",
        51
    );
    let large = "jsonb_build_object('x', repeat('y', 8190))";
    refuses_in_both(
        "PR013",
        "headers",
        &[
            "'[]'",
            "'\"x\"'",
            "'null'",
            r#"'{"x": 1}'"#,
            r#"'{"x": null}'"#,
            r#"'{"x": ["y"]}'"#,
            r#"'{"": "y"}'"#,
            r#"'{"x y": "z"}'"#,
            r#"'{"x:": "z"}'"#,
            r#"'{" x": "z"}'"#,
            r#"'{"x\r\ny": "z"}'"#,
            r#"'{"ä": "z"}'"#,
            r#"'{"x": "a\r\nY: b"}'"#,
            r#"'{"x": "a\nb"}'"#,
            r#"'{"x": "a\rb"}'"#,
            r#"'{"x": "a\u007fb"}'"#,
            r#"'{"x": "a\u0001b"}'"#,
            r#"'{"x": " a"}'"#,
            r#"'{"x": "a "}'"#,
            r#"'{"x": "\ta"}'"#,
            r#"'{"x": "ä"}'"#,
            r#"'{"Host": "a"}'"#,
            r#"'{"hOST": "a"}'"#,
            r#"'{"Content-Length": "1"}'"#,
            r#"'{"Content-Encoding": "gzip"}'"#,
            r#"'{"Transfer-Encoding": "chunked"}'"#,
            r#"'{"Connection": "close"}'"#,
            r#"'{"Keep-Alive": "x"}'"#,
            r#"'{"TE": "x"}'"#,
            r#"'{"Trailer": "x"}'"#,
            r#"'{"Upgrade": "x"}'"#,
            r#"'{"Expect": "100-continue"}'"#,
            r#"'{"Proxy-Authorization": "x"}'"#,
            r#"'{"Webhook-Signature": "x"}'"#,
            r#"'{"webhook-anything": "x"}'"#,
            r#"'{"X-A": "1", "x-a": "2"}'"#,
            &many,
            large,
        ],
    )
    .await;
    // jsonb itself has no NUL.
    refuses([(
        "22P05",
        r#"select postrider.create_endpoint('https://c.example/', headers => '{"x": "\u0000"}')"#
            .to_owned(),
    )])
    .await;
}

#[tokio::test]
async fn g26_headers_that_are_fine_are_kept() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let headers = r#"{"Authorization": "Bearer a b\tc", "Content-Type": "application/cloudevents+json",
                      "User-Agent": "me/1", "X-Empty": "", "x_y!#$%&*+.^`|~": "\"{}\""}"#;
    let sql =
        format!("select postrider.create_endpoint('https://c.example/', headers => '{headers}')");
    run(&client, &sql).await;
    let stored: serde_json::Value = one(&client, "select headers from postrider.endpoints").await;
    assert_eq!(
        stored,
        serde_json::from_str::<serde_json::Value>(headers).unwrap()
    );
}

/// Every single character, at each place of a name and of a value: what is stored can be sent.
#[tokio::test]
async fn g26_every_character_that_is_stored_can_be_sent() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    run(
        &client,
        "create function pg_temp.takes(name text, value text) returns boolean language plpgsql as $$
         begin
             perform postrider._check_headers(jsonb_build_object(name, value));
             return true;
         exception when sqlstate 'PR013' then return false;
         end $$",
    )
    .await;
    let sql = "select array_agg(pg_temp.takes(n, v) order by i) from unnest($1::text[], $2::text[]) with ordinality u (n, v, i)";
    let mut given = vec![
        (String::new(), "v".to_owned()),
        ("X".to_owned(), String::new()),
    ];
    for c in (1..=0x17f)
        .chain([0x2028, 0xff1a, 0x1_f600])
        .filter_map(char::from_u32)
    {
        for text in [
            format!("{c}"),
            format!("{c}x"),
            format!("x{c}"),
            format!("x{c}y"),
        ] {
            given.push((text.clone(), "v".to_owned()));
            given.push(("X".to_owned(), text));
        }
    }
    let (names, values): (Vec<_>, Vec<_>) = given.iter().cloned().unzip();
    let row = client.query_one(sql, &[&names, &values]).await.unwrap();
    let taken: Vec<bool> = row.get(0);
    for ((name, value), taken) in given.iter().zip(taken) {
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let visible = |c: char| c.is_ascii_graphic() || matches!(c, ' ' | '\t');
        let right = !name.is_empty()
            && name.chars().all(token)
            && value.chars().all(visible)
            && value.trim() == value
            && !name.eq_ignore_ascii_case("te");
        assert_eq!(taken, right, "{name:?}: {value:?}");
        if taken {
            assert!(
                HeaderName::try_from(name).is_ok() && HeaderValue::try_from(value).is_ok(),
                "{name:?}: {value:?}"
            );
        }
    }
}

#[tokio::test]
async fn g26_an_event_type_carries_no_header_in() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    run(
        &client,
        "select postrider.create_endpoint('https://a.example/')",
    )
    .await;
    for event_type in [
        "a\\r\\nX: y",
        "a\\nb",
        "a\\rb",
        "a b",
        "a\\tb",
        "a\\x7f",
        "a:b",
        "ä",
        "\\u2028",
        "",
    ] {
        for call in [
            "emit_event(E'{}', '{\"a\":1}'::jsonb)",
            "emit_event(E'{}', '1')",
            "send_test_event(1, E'{}')",
        ] {
            let sql = format!("select postrider.{}", call.replace("{}", event_type));
            assert_eq!(refused(&client, &sql).await, "PR001", "{sql}");
        }
    }
    assert_eq!(
        one::<i64>(&client, "select count(*) from postrider.events").await,
        0
    );
}

/// Over the wire: each header once, with its value; ours are ours. What got into the table by another way ends
/// its deliveries visibly, without a request, and hurts no other endpoint.
#[tokio::test]
async fn g26_what_arrives_is_what_was_set() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let own = [
        ("Authorization", "Bearer a b\tc"),
        ("X-Empty", ""),
        ("x_y!#$%&*+.^`|~", "\"{}\": ,;"),
        ("X-Long", &"y".repeat(4000)),
        ("content-type", "application/cloudevents+json"),
        ("USER-AGENT", "me/1"),
    ];
    let headers: serde_json::Map<_, _> = own
        .iter()
        .map(|(n, v)| ((*n).to_owned(), (*v).into()))
        .collect();
    let headers = serde_json::Value::from(headers)
        .to_string()
        .replace('\'', "''");
    let good = world
        .endpoint("/good", &format!("headers => '{headers}'"))
        .await;
    let bad = world.endpoint("/bad", "").await;
    for (n, headers) in [r#"{"X": "a\r\nY: b"}"#, r#"{"X\r\nY": "b"}"#, r#"{"X": 7}"#]
        .iter()
        .enumerate()
    {
        let sql = format!("update postrider.endpoints set headers = '{headers}' where id = {bad}");
        world.run(&sql).await;
        if n == 0 {
            world.worker();
        }
        let event = world.emit("a.b").await;
        let ended = world.wait_for_status(event, bad, "rejected").await;
        assert!(
            ended.last_error.is_some() && ended.reason.is_some(),
            "{ended:?}"
        );
        world.wait_for_status(event, good, "delivered").await;
    }
    assert!(world.receiver.requests_to("/bad").is_empty());
    for request in world.receiver.requests_to("/good") {
        for (name, value) in own {
            let found: Vec<_> = request
                .headers
                .iter()
                .filter(|(n, _)| n.eq_ignore_ascii_case(name))
                .collect();
            assert_eq!(found.len(), 1, "{name}: {:?}", request.headers);
            assert_eq!(found[0].1, value, "{name}");
        }
        let reserved = [
            "host",
            "content-length",
            "webhook-id",
            "webhook-timestamp",
            "webhook-signature",
            "webhook-event-type",
            "webhook-attempt",
        ];
        for name in reserved {
            let count = request
                .headers
                .iter()
                .filter(|(n, _)| n.eq_ignore_ascii_case(name))
                .count();
            assert_eq!(count, 1, "{name}");
        }
        assert_eq!(request.header("webhook-event-type"), Some("a.b"));
        assert_eq!(request.headers.len(), own.len() + reserved.len());
    }
}
