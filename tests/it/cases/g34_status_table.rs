//! G34: a policy of statuses that loops or gives up wrongly: a 403 asked for ever, a lookup that failed once
//! judged permanent. The README's table is read line by line and the product held against it.

use std::collections::{HashMap, HashSet};

use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::receiver::Receiver;
use crate::fixtures::worker::LIMIT;
use crate::fixtures::world::World;

const ANSWERS: &str = "200 201 204 299 300 304 400 401 403 404 408 409 410 413 421 425 429 499 500 502 \
    503 504 599 600 999 503-wait refused reset closed silent garbage lookup tls";

/// What a line's first cell speaks of; those that say "other" come after those they exclude.
fn covers(line: &str, answer: &str) -> bool {
    let class = |c: &str| answer.len() == 3 && answer.starts_with(c);
    match line {
        "2xx" => class("2"),
        "429" => answer == "429",
        "503 with `Retry-After`" => answer == "503-wait",
        "408, 425, other 5xx" => class("5") || ["408", "425"].contains(&answer),
        "no answer: refused, reset, no name, no TLS, too late, not HTTP" => {
            answer.parse::<u16>().is_err() && answer != "503-wait"
        }
        "410" => answer == "410",
        "3xx, other 4xx" => {
            class("3") || class("4") && !["408", "425", "429", "410"].contains(&answer)
        }
        "anything else" => class("6") || class("9"),
        other => panic!("a line that no test knows: {other}"),
    }
}

/// Answer and policy to what the README says.
fn documented() -> HashMap<(&'static str, &'static str), &'static str> {
    let readme = include_str!("../../../README.md");
    let table = readme.split("| you answer |").nth(1).unwrap();
    let mut said = HashMap::new();
    for line in table.lines().skip(2).take_while(|l| l.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [of, patient, brisk] = cells[..] else {
            panic!("{line}");
        };
        let verdict = |cell: &'static str| cell.split([' ', ':', ',']).next().unwrap();
        let covered: Vec<_> = ANSWERS.split(' ').filter(|a| covers(of, a)).collect();
        assert!(!covered.is_empty(), "{line}");
        for answer in covered {
            for (policy, cell) in [("patient", patient), ("brisk", brisk)] {
                let before = said.insert((answer, policy), verdict(cell));
                assert_eq!(before, None, "{answer} stands in two lines");
            }
        }
    }
    said
}

fn reply(answer: &str) -> Reply {
    match answer {
        "503-wait" => Reply::status(503).header("Retry-After", 1),
        "reset" => Reply::Reset,
        "closed" => Reply::Close,
        "silent" => Reply::Hang,
        "garbage" => Reply::Raw(b"\0\xff no http\r\n\r\n".to_vec()),
        status => Reply::status(status.parse().unwrap()),
    }
}

/// A delivery for each answer and policy, always answered the same: each comes to its end, after as many
/// attempts as the table and the policy say.
#[tokio::test]
async fn g34_the_table_of_the_readme_holds_line_by_line() {
    let said = documented();
    assert_eq!(
        said.len(),
        2 * ANSWERS.split(' ').count(),
        "answers that no line covers"
    );
    let mut world = World::new(|request, _| reply(request.path.split('/').nth(2).unwrap())).await;
    // The built-in policies, but quick.
    world
        .run(
            "update postrider.policies set max_attempts = 3, backoff_base = '10 ms', backoff_cap = '10 ms',
                    request_timeout = '1 s', pause_default = '1 s', time_to_live = '8 s'
              where name in ('patient', 'brisk')",
        )
        .await;
    let nobody = Receiver::ok().await.url("");
    let tls = world.receiver.url("").replace("http:", "https:");
    let mut owed = Vec::new();
    for (answer, policy) in said.keys() {
        let base = match *answer {
            "refused" => nobody.clone(),
            "lookup" => "http://no-such-name.invalid".to_owned(),
            "tls" => tls.clone(),
            _ => world.receiver.url(""),
        };
        let url = format!("{base}/{policy}/{answer}");
        let sql = "select endpoint_id from postrider.create_endpoint(url => $1, policy => $2)";
        let endpoint: i64 = world.one(sql, &[&url, policy]).await;
        owed.push((*answer, *policy, endpoint));
    }
    world.worker();
    let event = world.emit("a").await;
    let mut wrong = Vec::new();
    let mut reasons = HashSet::new();
    for (answer, policy, endpoint) in owed {
        let ended = eventually(LIMIT, async || {
            let delivery = world.delivery(event, endpoint).await;
            delivery.filter(|d| d.status != "pending")
        })
        .await;
        let found = (ended.status.as_str(), ended.attempts);
        let verdict = said[&(answer, policy)];
        let right = match verdict {
            "delivered" => found == ("delivered", 1),
            "final" => found == ("rejected", 1),
            "retried" => found == ("exhausted", 3),
            // A 429 uses nothing up: the time to live ends it.
            "pause" if answer == "429" => ended.status == "expired" && ended.failures == 0,
            "pause" => found == ("exhausted", 3),
            other => panic!("{other}"),
        };
        if !right {
            wrong.push(format!("{answer} under {policy}: {verdict}, but {ended:?}"));
        }
        let is_known = ended.reason.clone().filter(|r| !r.is_empty());
        assert_eq!(is_known.is_some(), ended.status != "delivered", "{answer}");
        if ended.status != "delivered" {
            reasons.insert((
                ended.reason,
                ended.last_http_status,
                ended.last_error.is_some(),
            ));
            assert!(
                ended.last_http_status.is_some() || ended.last_error.is_some(),
                "{answer}"
            );
        }
        let sql =
            "select disabled_at is not null from postrider.endpoint_state where endpoint_id = $1";
        let disabled: bool = world.one(sql, &[&endpoint]).await;
        let sql = "select count(*) from postrider.alerts where endpoint_id = $1 and kind = 'endpoint_disabled'";
        let alerts: i64 = world.one(sql, &[&endpoint]).await;
        let gone = answer == "410" && policy == "patient";
        assert_eq!(
            (disabled, alerts),
            (gone, i64::from(gone)),
            "{answer} under {policy}"
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Statuses of the same verdict are told apart.
    assert!(reasons.len() >= 25, "{reasons:?}");
}
