//! Operators: they create, pause, disable, delete, rotate secrets, replay, and put things right again.

use tokio_postgres::Client;
use uuid::Uuid;

use crate::audit::evidence::{Span, Stopped};
use crate::choices::Choices;
use crate::endpoints::{self, create};
use crate::world::{Log, World};

#[derive(Clone, Copy, Debug)]
enum Act {
    Create,
    Pause,
    PauseBriefly,
    Resume,
    Disable,
    Enable,
    Delete,
    Rotate,
    Replay,
}

/// Operates until the end of the run.
pub async fn operate(world: &World) {
    let mut choices = Choices::of(world.seed, "operators");
    let mut client: Option<Client> = None;
    while !world.over() {
        tokio::time::sleep(choices.time(50, 700)).await;
        let act = choices.weighted(&[
            (3, Act::Create),
            (6, Act::Pause),
            (10, Act::PauseBriefly),
            (22, Act::Resume),
            (6, Act::Disable),
            (26, Act::Enable),
            (2, Act::Delete),
            (12, Act::Rotate),
            (14, Act::Replay),
        ]);
        let which = choices.between(0, 1 << 30) as usize;
        if client.as_ref().is_none_or(Client::is_closed) {
            client = world.connect("soak_operator").await;
        }
        let Some(open) = &client else { continue };
        if carry_out(world, open, act, which).await {
            world.note(|log| {
                log.count(match act {
                    Act::Create => "endpoints created",
                    Act::Pause | Act::PauseBriefly => "endpoints paused",
                    Act::Resume => "endpoints resumed",
                    Act::Disable => "endpoints disabled",
                    Act::Enable => "endpoints enabled",
                    Act::Delete => "endpoints deleted",
                    Act::Rotate => "secrets rotated",
                    Act::Replay => "deliveries replayed",
                })
            });
        }
    }
}

async fn carry_out(world: &World, client: &Client, act: Act, which: usize) -> bool {
    let live: Vec<(i64, String)> = world.note(|log| log.live());
    if matches!(act, Act::Create) {
        return live.len() < 24
            && create(
                world,
                client,
                endpoints::KINDS[which % endpoints::KINDS.len()],
            )
            .await;
    }
    if live.is_empty() || matches!(act, Act::Delete) && live.len() < 10 {
        return false;
    }
    let (id, path) = &live[which % live.len()];
    let run = async |sql: &str| client.execute(sql, &[id]).await.is_ok();
    // What it ends it ends when it begins; what it begins, when it has returned.
    let begun = world.now();
    match act {
        Act::Create => false,
        Act::Pause | Act::PauseBriefly => {
            world.note(|log| log.end_stop(path, "paused", begun));
            let brief = matches!(act, Act::PauseBriefly);
            let until = if brief {
                "pg_catalog.clock_timestamp() + interval '5 s'"
            } else {
                "'infinity'"
            };
            let done = run(&format!("select postrider.pause_endpoint($1, {until})")).await;
            let to = if brief { begun + 5.0 } else { f64::INFINITY };
            done && world.note(|log| log.begin_stop(path, "paused", world.now(), to))
        }
        Act::Resume => {
            world.note(|log| log.end_stop(path, "paused", begun));
            run("select postrider.resume_endpoint($1)").await
        }
        Act::Disable => {
            let done = run("select postrider.disable_endpoint($1)").await;
            done && world.note(|log| log.begin_stop(path, "disabled", world.now(), f64::INFINITY))
        }
        Act::Enable => {
            world.note(|log| log.end_stop(path, "disabled", begun));
            run("select postrider.enable_endpoint($1)").await
        }
        Act::Delete => {
            world.note(|log| {
                let found = log.endpoints.iter_mut().find(|e| e.id == Some(*id));
                found.into_iter().for_each(|e| e.deleted = Some(begun));
            });
            let done = run("select postrider.delete_endpoint($1)").await;
            done && world.note(|log| log.begin_stop(path, "deleted", world.now(), f64::INFINITY))
        }
        Act::Rotate => {
            let overlap = ["0 s", "1 s", "1 day"][which % 3];
            let sql = "select postrider.rotate_secret($1, $2::text::interval)";
            let Ok(row) = client.query_one(sql, &[id, &overlap]).await else {
                return false;
            };
            world.note(|log| {
                let found = log.endpoints.iter_mut().find(|e| e.id == Some(*id));
                found.into_iter().for_each(|e| e.secrets.push(row.get(0)));
            });
            true
        }
        Act::Replay => replay(world, client, *id, which).await,
    }
}

async fn replay(world: &World, client: &Client, endpoint: i64, which: usize) -> bool {
    let sql =
        "select event_id from postrider.deliveries where endpoint_id = $1 and status <> 'pending'
               order by event_id desc offset $2 limit 1";
    let Ok(Some(row)) = client
        .query_opt(sql, &[&endpoint, &((which % 100) as i64)])
        .await
    else {
        return false;
    };
    let event: Uuid = row.get(0);
    world.note(|log| log.replayed.insert((event, endpoint)));
    let sql = "select postrider.replay_delivery($1, $2)";
    client.execute(sql, &[&event, &endpoint]).await.is_ok()
}

/// Puts everything right at the end, as often as it takes.
pub async fn put_right(world: &World, client: &Client) {
    let begun = world.now();
    // A deletion whose answer was lost may not have taken place.
    let there = "select id from postrider.endpoints where deleted_at is null";
    for row in client.query(there, &[]).await.unwrap_or_default() {
        let id: i64 = row.get(0);
        world.note(|log| {
            let found = log.endpoints.iter_mut().find(|e| e.id == Some(id));
            found.into_iter().for_each(|e| e.deleted = None);
        });
    }
    for (id, path) in world.note(|log| log.live()) {
        world.note(|log| {
            log.end_stop(&path, "paused", begun);
            log.end_stop(&path, "disabled", begun);
        });
        let sql = "select postrider.resume_endpoint($1), postrider.enable_endpoint($1)";
        let _ = client.execute(sql, &[&id]).await;
    }
}

impl Log {
    fn begin_stop(&mut self, path: &str, how: &'static str, from: f64, to: f64) -> bool {
        self.stopped.push(Stopped {
            path: path.to_owned(),
            how,
            span: Span { from, to },
        });
        true
    }

    fn end_stop(&mut self, path: &str, how: &'static str, at: f64) {
        for stop in self
            .stopped
            .iter_mut()
            .filter(|s| s.path == path && s.how == how)
        {
            stop.span.to = stop.span.to.min(at);
        }
    }
}
