//! Bad input: refused with its own SQLSTATE, and nothing is changed.

use tokio_postgres::Client;

use crate::fixtures::postgres::TestDb;
use crate::fixtures::sql::{one, refused, run};

/// Everything an operator's function could change.
async fn state(client: &Client) -> String {
    let sql = "select md5(concat(
        (select string_agg(t::text, ' ' order by t::text) from postrider.endpoints t),
        (select string_agg(t::text, ' ' order by t::text) from postrider.endpoint_state t),
        (select string_agg(t::text, ' ' order by t::text) from postrider.endpoint_secrets t),
        (select string_agg(t::text, ' ' order by t::text) from postrider.subscriptions t),
        (select string_agg(t::text, ' ' order by t::text) from postrider.alerts t),
        (select string_agg(t::text, ' ' order by t::text) from postrider.events t),
        (select string_agg(t::text, ' ' order by t::text) from postrider.pending t)))";
    one(client, sql).await
}

/// A database with an endpoint 1 at https://a.example/ and its like, for `cases` of (code, statement).
pub async fn refuses<'a>(cases: impl IntoIterator<Item = (&'a str, String)>) {
    let db = TestDb::new().await;
    let client = db.connect().await;
    run(
        &client,
        "select postrider.create_endpoint('https://a.example/'), postrider.create_endpoint('https://b.example/')",
    )
    .await;
    let before = state(&client).await;
    for (code, sql) in cases {
        assert_eq!(refused(&client, &sql).await, code, "{sql}");
    }
    assert_eq!(state(&client).await, before);
}

/// Both ways in which a value reaches an endpoint.
fn create_and_update(code: &str, argument: &str, values: &[&str]) -> Vec<(String, String)> {
    let mut cases = Vec::new();
    for value in values {
        let given = format!("{argument} => {value}");
        let url = if argument == "url" {
            ""
        } else {
            "'https://c.example/', "
        };
        cases.push((
            code.to_owned(),
            format!("select postrider.create_endpoint({url}{given})"),
        ));
        cases.push((
            code.to_owned(),
            format!("select postrider.update_endpoint(1, {given})"),
        ));
    }
    cases
}

pub async fn refuses_in_both(code: &str, argument: &str, values: &[&str]) {
    let cases = create_and_update(code, argument, values);
    refuses(cases.iter().map(|(code, sql)| (code.as_str(), sql.clone()))).await;
}

#[tokio::test]
async fn g25_urls() {
    let long = format!("'https://a.example/{}'", "x".repeat(2040));
    let label = format!("'https://{}.example/'", "x".repeat(64));
    let mut values = vec![long.as_str(), label.as_str()];
    values.extend([
        "''",
        "'a.example'",
        "'//a.example'",
        "'ftp://a.example/'",
        "'HTTPS://a.example/'",
        "'http://a.example/'",
        "'https://'",
        "'https:///x'",
        "'https://user@a.example/'",
        "'https://user:word@a.example/'",
        "'https://a.example/#x'",
        "'https://a.example/ x'",
        "' https://a.example/'",
        "E'https://a.example/\\n'",
        "E'https://a.example/\\r\\nX: y'",
        "E'https://a.example/\\x7f'",
        "'https://ä.example/'",
        "'https://a.example/ä'",
        "'https://a.example:0/'",
        "'https://a.example:65536/'",
        "'https://a.example:99999999999999999999/'",
        "'https://a.example:/'",
        "'https://a.example:x/'",
        "'https://a.example:-1/'",
        "'https://[4::c0:.97]/'",
        "'https://[::1.2.3]/'",
        "'https://[::1.2.3.4.5]/'",
        "'https://[::01.2.3.4]/'",
        "'https://a..example/'",
        "'https://.example/'",
        "'https://a.example./'",
        "'https://-a.example/'",
        "'https://a_b.example-/'",
        "'https://a%2eexample/'",
        "'https://[::1/'",
        "'https://::1/'",
        "'https://[1.2.3.4]/'",
        "'https://[::g]/'",
        "'https://[::1%25eth0]/'",
        "'https://[::1]x/'",
        "'https://127.1/'",
        "'https://2130706433/'",
        "'https://0x7f000001/'",
        "'https://127.0.0.0x1/'",
        "'https://127.0.0.01/'",
        "'https://256.0.0.1/'",
        "'https://1.2.3.4.5/'",
        "'https://a.example/%'",
        "'https://a.example/%2'",
        "'https://a.example/%zz'",
        "'https://a.example/<>'",
        "'https://a.example/\"'",
        "'https://a.example/{x}'",
        "'https://a.example/a|b'",
        "'https://a.example/^'",
        "'https://a.example/\\'",
        "'https://a.example\\@b.example/'",
        "'https://a.example/[x]'",
    ]);
    refuses_in_both("PR011", "url", &values).await;
    refuses([("PR011", "select postrider.create_endpoint(null)".to_owned())]).await;
}

#[tokio::test]
async fn g25_urls_that_are_fine() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    run(&client, "update postrider.settings set allow_http = true").await;
    for url in [
        "https://a.example",
        "https://a.example?x=1",
        "https://a.example:8443/h%C3%A4?x=a/b:c@d&e=?",
        "https://A.Example/Hook;v=1,2!$'()*+~_-.",
        "http://localhost:8080/",
        "http://127.0.0.1:1/",
        "http://[::1]:65535/",
        "http://[::ffff:10.0.0.5]/",
        "https://a_b.xn--bcher-kva.example/",
        "https://1password.example/",
    ] {
        assert!(url.parse::<hyper::Uri>().is_ok(), "{url}");
        let quoted = url.replace('\'', "''");
        run(
            &client,
            &format!("select postrider.create_endpoint('{quoted}')"),
        )
        .await;
    }
}

#[tokio::test]
async fn g23_malformed_secrets_are_refused_when_stored() {
    let good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let short = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaU="; // 23 bytes
    let long = format!("whsec_{}Zg==", "A".repeat(88)); // 67 bytes
    let mut cases = Vec::new();
    for secret in [
        "",
        "whsec_",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwe",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSweQ",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSweR==",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw=",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw====",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS-_A==",
        "whsec_MfKQ9r8GKYqrTwjU PD8ILPZIo2LaLaSw",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw ",
        " whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
        "whsec_MfKQ9r8GKYqrTwjU\nPD8ILPZIo2LaLaSw",
        short,
        &long,
    ] {
        let create =
            format!("select postrider.create_endpoint('https://c.example/', secret => '{secret}')");
        cases.push(("PR014", create));
        cases.push((
            "PR014",
            format!("select postrider.rotate_secret(1, secret => '{secret}')"),
        ));
    }
    refuses(cases).await;

    let db = TestDb::new().await;
    let client = db.connect().await;
    let largest = format!("whsec_{}Zg==", "A".repeat(84)); // 64 bytes
    for (n, secret) in [good, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSweQ==", &largest]
        .iter()
        .enumerate()
    {
        let sql = format!(
            "select secret from postrider.create_endpoint('https://c.example/{n}', secret => '{secret}')"
        );
        assert_eq!(one::<String>(&client, &sql).await, *secret);
    }
    // A refused secret is not repeated where it would be logged.
    let sql = "select postrider.create_endpoint('https://d.example/', secret => 'hunter2')";
    let error = client.batch_execute(sql).await.unwrap_err();
    assert!(!format!("{:?}", error.as_db_error().unwrap().message()).contains("hunter2"));
}

#[tokio::test]
async fn patterns_policies_pace_and_the_rest() {
    let long = format!("'{{{}}}'", "x".repeat(131));
    let patterns = [
        "'{\"\"}'",
        "'{null}'",
        "'{a..b}'",
        "'{.a}'",
        "'{a.}'",
        "'{*.a}'",
        "'{a.*.b}'",
        "'{a*}'",
        "'{**}'",
        "'{\"a b\"}'",
        "'{ä}'",
        "E'{\"a\\n\"}'",
        "'{ok,not ok}'",
        &long,
    ];
    refuses_in_both("PR016", "event_types", &patterns).await;
    refuses_in_both("PR010", "policy", &["'none'", "''"]).await;
    refuses_in_both(
        "PR012",
        "rate",
        &["0", "-1", "'NaN'", "'Infinity'", "100000.1", "0.000001"],
    )
    .await;
    refuses_in_both("PR012", "burst", &["0", "-1", "100001"]).await;
    refuses_in_both("PR012", "concurrency", &["0", "-1", "1001"]).await;
    refuses_in_both("PR015", "signature", &["''", "'Stripe'", "'none'"]).await;
    refuses([
        (
            "PR006",
            "select postrider.create_endpoint('https://c.example/', tenant => '')".to_owned(),
        ),
        (
            "PR006",
            "select postrider.create_endpoint('https://c.example/', tenant => null)".to_owned(),
        ),
        (
            "PR006",
            "select postrider.create_endpoint('https://c.example/', tenant => repeat('x', 201))"
                .to_owned(),
        ),
        (
            "PR010",
            "select postrider.create_endpoint('https://c.example/', policy => null)".to_owned(),
        ),
        (
            "PR013",
            "select postrider.create_endpoint('https://c.example/', headers => null)".to_owned(),
        ),
        (
            "PR015",
            "select postrider.create_endpoint('https://c.example/', signature => null)".to_owned(),
        ),
        (
            "PR016",
            "select postrider.create_endpoint('https://c.example/', event_types => null)"
                .to_owned(),
        ),
        (
            "PR017",
            "select postrider.create_endpoint('https://a.example/')".to_owned(),
        ),
        (
            "PR017",
            "select postrider.update_endpoint(1, url => 'https://b.example/')".to_owned(),
        ),
        (
            "PR012",
            "select postrider.update_endpoint(1, rate => 1, use_policy_pace => true)".to_owned(),
        ),
        (
            "PR018",
            "select postrider.pause_endpoint(1, null)".to_owned(),
        ),
        (
            "PR018",
            "select postrider.pause_endpoint(1, '-infinity')".to_owned(),
        ),
        (
            "PR018",
            "select postrider.pause_endpoint(1, now())".to_owned(),
        ),
        (
            "PR018",
            "select postrider.rotate_secret(1, null)".to_owned(),
        ),
        (
            "PR018",
            "select postrider.rotate_secret(1, '-1 s')".to_owned(),
        ),
        (
            "PR018",
            "select postrider.rotate_secret(1, '30 days 1 s')".to_owned(),
        ),
        ("PR010", "select postrider.retry_preview('none')".to_owned()),
        ("PR022", "select postrider.dismiss_alert(1)".to_owned()),
        (
            "PR001",
            "select postrider.send_test_event(1, E'a\\r\\nX: y')".to_owned(),
        ),
        (
            "PR002",
            "select postrider.send_test_event(1, payload => null)".to_owned(),
        ),
    ])
    .await;
}

const ON_AN_ENDPOINT: [&str; 9] = [
    "update_endpoint({}, description => 'x')",
    "delete_endpoint({})",
    "pause_endpoint({})",
    "resume_endpoint({})",
    "disable_endpoint({})",
    "enable_endpoint({})",
    "rotate_secret({})",
    "send_test_event({})",
    "replay_delivery(gen_random_uuid(), {})",
];

#[tokio::test]
async fn endpoints_that_are_not_there() {
    for id in ["77", "null", "-1"] {
        refuses(ON_AN_ENDPOINT.map(|call| {
            (
                "PR004",
                format!("select postrider.{}", call.replace("{}", id)),
            )
        }))
        .await;
    }
}

#[tokio::test]
async fn other_isolation_levels() {
    let all = ON_AN_ENDPOINT.map(|call| call.replace("{}", "1"));
    let others = ["create_endpoint('https://c.example/')", "dismiss_alert(1)"].map(str::to_owned);
    let db = TestDb::new().await;
    let client = db.connect().await;
    run(
        &client,
        "select postrider.create_endpoint('https://a.example/')",
    )
    .await;
    for level in ["repeatable read", "serializable"] {
        for call in all.iter().chain(&others) {
            run(&client, &format!("begin isolation level {level}")).await;
            let code = refused(&client, &format!("select postrider.{call}")).await;
            assert_eq!(code, "PR020", "{call}");
            run(&client, "rollback").await;
        }
    }
}

#[tokio::test]
async fn event_types_and_their_patterns() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let sql = "select postrider._patterns('invoice.paid.late')";
    let patterns: Vec<String> = one(&client, sql).await;
    assert_eq!(
        patterns,
        ["*", "invoice.*", "invoice.paid.*", "invoice.paid.late"]
    );
    assert_eq!(
        one::<Vec<String>>(&client, "select postrider._patterns('invoice')").await,
        ["*", "invoice"]
    );
    for good in ["a", "a.b", "A-1_b.c", &"x".repeat(128)] {
        assert!(
            one::<bool>(
                &client,
                &format!("select postrider._is_event_type('{good}')")
            )
            .await
        );
    }
    for bad in [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a b",
        "*",
        "a.*",
        "ä",
        "a\r\nX: y",
        "a\n",
        &"x".repeat(129),
    ] {
        assert!(
            !one::<bool>(
                &client,
                &format!("select postrider._is_event_type('{bad}')")
            )
            .await,
            "{bad:?}"
        );
    }
}
