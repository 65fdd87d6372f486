//! The endpoints of the run: of every kind several, each at a path of its own.

use tokio_postgres::Client;

use crate::world::{Log, World};

/// What an endpoint is created with.
#[derive(Clone, Debug)]
pub struct Created {
    pub path: String,
    pub id: Option<i64>,
    pub tenant: &'static str,
    pub patterns: &'static [&'static str],
    pub rate: f64,
    pub burst: i32,
    pub concurrency: i32,
    pub created: Option<f64>,
    pub deleted: Option<f64>,
    pub secrets: Vec<String>,
}

/// Kinds of endpoints: name, tenant, patterns, policy, rate, burst, concurrency.
pub type Kind = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static str,
    f64,
    i32,
    i32,
);
pub const KINDS: &[Kind] = &[
    ("fast", "default", &["*"], "soak", 100.0, 20, 10),
    ("mid", "default", &["invoice.*"], "soak", 40.0, 10, 5),
    (
        "users",
        "default",
        &["user.created", "report.*"],
        "soak",
        10.0,
        10,
        2,
    ),
    ("slow", "default", &["report.done"], "soak", 3.0, 1, 1),
    (
        "skips",
        "default",
        &["invoice.sent"],
        "soak_skips",
        20.0,
        10,
        5,
    ),
    (
        "brief",
        "default",
        &["invoice.sent", "user.*"],
        "soak_brief",
        10.0,
        3,
        3,
    ),
    ("other", "other", &["invoice.paid"], "soak", 10.0, 2, 2),
];

/// Creates two endpoints of each kind.
pub async fn set_up(world: &World) {
    let client = world
        .connect("soak_operator")
        .await
        .expect("no connection before the faults");
    for kind in KINDS.iter().chain(KINDS) {
        create(world, &client, *kind).await;
    }
}

/// Creates an endpoint of a kind; false when it was refused, or the answer lost.
pub async fn create(world: &World, client: &Client, kind: Kind) -> bool {
    let (name, tenant, patterns, policy, rate, burst, concurrency) = kind;
    let at = world.note(|log| {
        log.endpoints.push(Created {
            path: format!("/{name}-{}", log.endpoints.len()),
            id: None,
            tenant,
            patterns,
            rate,
            burst,
            concurrency,
            created: None,
            deleted: None,
            secrets: Vec::new(),
        });
        log.endpoints.len() - 1
    });
    let url = world
        .receivers
        .receiver
        .url(&world.note(|log| log.endpoints[at].path.clone()));
    let sql = "select endpoint_id, secret from postrider.create_endpoint($1, $2, tenant => $3, policy => $4,
                      rate => $5::float8::numeric, burst => $6, concurrency => $7)";
    let row = client
        .query_one(
            sql,
            &[
                &url,
                &patterns,
                &tenant,
                &policy,
                &rate,
                &burst,
                &concurrency,
            ],
        )
        .await;
    let Ok(row) = row else { return false };
    world.note(|log| {
        let made = &mut log.endpoints[at];
        made.id = Some(row.get(0));
        made.secrets.push(row.get(1));
        made.created = Some(world.now());
    });
    true
}

impl Log {
    /// The endpoints that nobody has tried to delete.
    pub fn live(&self) -> Vec<(i64, String)> {
        let live = self.endpoints.iter().filter(|e| e.deleted.is_none());
        live.filter_map(|e| Some((e.id?, e.path.clone()))).collect()
    }
}
