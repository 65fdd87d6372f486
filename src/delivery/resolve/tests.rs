use std::sync::{
    Condvar,
    atomic::{AtomicUsize, Ordering},
};

use super::*;

/// Looks up names that begin with `dead` for as long as it is shut, and counts.
#[derive(Default)]
struct Counted {
    shut: Mutex<bool>,
    changed: Condvar,
    begun: AtomicUsize,
    open: AtomicUsize,
}

impl Counted {
    fn shut() -> Arc<Self> {
        let counted = Self::default();
        *counted.shut.lock().unwrap() = true;
        Arc::new(counted)
    }

    fn default_lookups() -> Lookups {
        Arc::new(Self::default()).lookups()
    }

    fn open_up(&self) {
        *self.shut.lock().unwrap() = false;
        self.changed.notify_all();
    }

    fn lookups(self: &Arc<Self>) -> Lookups {
        let this = self.clone();
        Lookups::new(Resolver::new(move |host| {
            this.begun.fetch_add(1, Ordering::SeqCst);
            this.open.fetch_add(1, Ordering::SeqCst);
            if host.starts_with("dead") {
                let shut = this.shut.lock().unwrap();
                drop(this.changed.wait_while(shut, |shut| *shut).unwrap());
                this.open.fetch_sub(1, Ordering::SeqCst);
                return Err(io::Error::other("no answer"));
            }
            assert!(host != "panics");
            this.open.fetch_sub(1, Ordering::SeqCst);
            Ok(vec![([127, 0, 0, 1], 0).into()])
        }))
    }

    async fn all_open(&self, count: usize) {
        while self.open.load(Ordering::SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // And no more than that.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(self.open.load(Ordering::SeqCst), count);
    }
}

async fn done(mut lookup: watch::Receiver<Stage>) -> Result<Vec<SocketAddr>, String> {
    let ended = lookup.wait_for(|stage| matches!(stage, Stage::Done(_)));
    let ended = tokio::time::timeout(Duration::from_secs(20), ended).await;
    match &*ended.expect("it goes on").expect("it was given up") {
        Stage::Done(found) => found.clone(),
        _ => unreachable!(),
    }
}

#[tokio::test]
async fn one_at_a_time_for_a_host_and_a_new_one_after_each() {
    let counted = Counted::shut();
    let lookups = counted.lookups();
    let all: Vec<_> = (0..100).map(|_| lookups.find("dead")).collect();
    counted.all_open(1).await;
    counted.open_up();
    for lookup in all {
        assert!(done(lookup).await.is_err());
    }
    assert_eq!(counted.begun.load(Ordering::SeqCst), 1);
    done(lookups.find("dead")).await.unwrap_err();
    assert_eq!(counted.begun.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn dead_names_leave_room_for_those_known_to_work() {
    let counted = Counted::shut();
    let lookups = counted.lookups();
    done(lookups.find("works")).await.unwrap();
    let mut dead: Vec<_> = (0..300)
        .map(|n| lookups.find(&format!("dead{n}")))
        .collect();
    counted.all_open(UNPROVEN).await;
    done(lookups.find("works")).await.unwrap();
    // Those in the line give up.
    dead.truncate(UNPROVEN);

    // Once each has been seen to hang, they leave room for new names too.
    tokio::time::sleep(QUICK).await;
    counted.open_up();
    for lookup in dead {
        done(lookup).await.unwrap_err();
    }
    *counted.shut.lock().unwrap() = true;
    let slow: Vec<_> = (0..UNPROVEN)
        .map(|n| lookups.find(&format!("dead{n}")))
        .collect();
    counted.all_open(SLOW).await;
    done(lookups.find("new")).await.unwrap();
    let waiting = slow
        .iter()
        .filter(|l| matches!(*l.borrow(), Stage::Waiting));
    assert_eq!(waiting.count(), UNPROVEN - SLOW);
    counted.open_up();
}

#[tokio::test]
async fn what_nobody_waits_for_is_not_looked_up_and_keeps_no_place() {
    let counted = Counted::shut();
    let lookups = counted.lookups();
    let dead: Vec<_> = (0..UNPROVEN)
        .map(|n| lookups.find(&format!("dead{n}")))
        .collect();
    counted.all_open(UNPROVEN).await;
    drop(lookups.find("late"));
    counted.open_up();
    for lookup in dead {
        done(lookup).await.unwrap_err();
    }
    done(lookups.find("later")).await.unwrap();
    assert_eq!(counted.begun.load(Ordering::SeqCst), UNPROVEN + 1);
    done(lookups.find("late")).await.unwrap();
}

#[tokio::test]
async fn a_resolver_that_panics_holds_up_nobody() {
    let lookups = Counted::shut().lookups();
    for _ in 0..THREADS * 2 {
        assert!(done(lookups.find("panics")).await.is_err());
    }
}

#[tokio::test]
async fn one_slow_answer_makes_no_dead_name() {
    let slow = |_: &str| {
        std::thread::sleep(QUICK + Duration::from_millis(50));
        Ok(vec![([127, 0, 0, 1], 0).into()])
    };
    let lookups = Lookups::new(Resolver::new(slow));
    done(lookups.find("late")).await.unwrap();
    assert!(lookups.0.hosts()["late"].known == Known::Nothing);
}

#[tokio::test]
async fn what_is_remembered_has_a_bound_and_is_not_forgotten_at_once() {
    let lookups = Counted::default_lookups();
    for n in 0..REMEMBERED {
        let quick = Host {
            known: Known::Quick,
            lookup: None,
        };
        lookups.0.hosts().insert(format!("quick{n}"), quick);
    }
    done(lookups.find("one more")).await.unwrap();
    let kept = lookups.0.hosts().len();
    assert!((REMEMBERED / 3..=REMEMBERED).contains(&kept), "{kept}");
}
