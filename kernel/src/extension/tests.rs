//! The life of extensions through one door, without a daemon: folders of a home, and what becomes of each.

use std::{fs, path::Path, sync::OnceLock};

use drupe_agent::{Clock, SystemClock};
use drupe_bus::{Delivered, Receiver, Remark};
use drupe_config::{Sources, load_config};
use drupe_host::home::Folders;
use drupe_journal::{DueMessage, Storage};
use futures_util::future::BoxFuture;

use super::*;
use crate::base::Start;

/// No agent of these tests takes messages.
struct Nobody;

impl Receiver for Nobody {
    fn deliver(&self, _: DueMessage) -> BoxFuture<'_, Delivered> {
        Box::pin(async { Delivered::NotHere })
    }

    fn remark(&self, _: Remark) {}
}

/// The roster of a home, with nothing looked at yet. No native code is loaded.
pub fn roster(home: &Path) -> Arc<Roster> {
    roster_at(home, Arc::new(SystemClock))
}

fn roster_at(home: &Path, clock: Arc<dyn Clock>) -> Arc<Roster> {
    let file = Some(home.join("drupe.yaml")).filter(|file| file.exists());
    let sources = Sources { file, home: home.to_owned(), ..Sources::default() };
    let config = load_config(&sources).unwrap_or_else(|faults| panic!("{}", faults.render(false))).value;
    let start = Start { exe: home.join("bin/drupe"), ..Start::default() };
    let home = Folders::new(home);
    let config_text = String::new();
    let redactor = drupe_redact::Redactor::default();
    let base =
        Arc::new(Base { home, config: Arc::new(config), clock, sources, config_text, start, redactor });
    let bus = Arc::new(Bus::default());
    let store =
        Store::open(&Storage::Memory, Arc::clone(&base.clock) as _, bus.publisher()).expect("a journal");
    let (_, link) = drupe_link::pair().expect("a link");
    let begun = drupe_wiring::begin(&base.config, base.home.workspace(), base.day(), &[]).expect("models");
    let queue = Arc::new(store.clone());
    Arc::new(Roster {
        life: Life::default(),
        supervision: Arc::new(Supervision::new(Arc::new(link), drupe_link::Verdicts::default(), None)),
        store,
        topics: Deliveries::new(queue, Arc::clone(&bus), Arc::new(Nobody), Arc::clone(&base.clock)),
        bus,
        extensions: Extensions::default(),
        wired: Arc::new(Wired::new(begun, &base.redactor)),
        servers: super::servers::ToldServers::default(),
        disk: Disk::of(&base),
        table: Box::new(|_, _| unreachable!("no native code is loaded")),
        changing: Mutex::default(),
        base,
    })
}

/// A home in which each step writes or removes folders, and is taken in.
struct House {
    folder: tempfile::TempDir,
    roster: Arc<Roster>,
}

impl House {
    fn new() -> Self {
        Self::at(Arc::new(SystemClock))
    }

    fn at(clock: Arc<dyn Clock>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("extensions")).expect("a folder");
        let roster = roster_at(folder.path(), clock);
        Self { folder, roster }
    }

    /// An agent whose manifest says `more`; an empty text removes it.
    fn put(&self, id: &str, more: &str) {
        let folder = self.folder.path().join("extensions").join(id);
        if more.is_empty() {
            return fs::remove_dir_all(folder).expect("it is there");
        }
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("p.md"), "You help.").expect("a file");
        fs::write(folder.join("manifest.yaml"), format!("id: {id}\nname: {id}\ndescription: Helps.\n{more}"))
            .expect("a file");
    }

    /// Takes in what lies there now; each extension with its state and reason.
    async fn check(&self, changes: &[(&str, &str)], says: &[&str]) {
        changes.iter().for_each(|(id, more)| self.put(id, more));
        change::rescan(&self.roster).await.expect("it is taken in");
        let shown = self.roster.extensions.read(|r| {
            let (state, why) = r.state.shown();
            let state = serde_json::to_value(state).expect("a state");
            let why = why.map(|why| format!(": {}", why.lines().last().unwrap_or(why))).unwrap_or_default();
            format!("{} {}{why}", r.found.name, state.as_str().expect("a text"))
        });
        assert_eq!(shown.len(), says.len(), "{shown:#?}");
        for (shown, says) in shown.iter().zip(says) {
            // `…` stands for whatever is said there.
            let mut rest = shown.as_str();
            let fits = says
                .split('…')
                .all(|part| rest.find(part).map(|at| rest = &rest[at + part.len()..]).is_some());
            assert!(fits, "`{shown}` is not `{says}`");
        }
    }

    /// The agents that are wired.
    fn agents(&self) -> Vec<String> {
        self.roster.snapshot().agents.keys().map(ToString::to_string).collect()
    }
}

const AGENT: &str = "agent: {model: default, instructions: p.md}\n";

fn using(other: &str) -> String {
    format!("depends_on: [{other}]\n{AGENT}")
}

#[tokio::test]
async fn what_lies_in_the_home_works_after_what_it_depends_on_and_says_why_it_does_not() {
    let house = House::new();
    house
        .check(
            &[
                ("a", &using("b")),
                ("b", AGENT),
                ("broken", "agent: {model: default, instructons: p.md}\n"),
                ("left", &using("nobody")),
                ("off", &format!("enabled: false\n{AGENT}")),
                ("right", &format!("rights: [control]\n{AGENT}")),
                ("x", &using("y")),
                ("y", &using("x")),
            ],
            &[
                "a active",
                "b active",
                "broken failed: …",
                "left failed: `depends_on` lists `nobody`, but there is no such extension",
                "off disabled: turned off by `enabled: false`",
                "right awaiting_approval: it brings the rights control…",
                "x failed: dependencies go in a circle: x → y → x",
                "y failed: dependencies go in a circle: x → y → x",
            ],
        )
        .await;
    assert_eq!(house.agents(), ["a", "b"]);
}

#[tokio::test]
async fn what_depends_on_one_that_is_removed_goes_out_with_it_and_comes_back_with_it() {
    let house = House::new();
    house.check(&[("a", &using("b")), ("b", AGENT)], &["a active", "b active"]).await;
    house.check(&[("b", "")], &["a failed: …no such extension"]).await;
    assert_eq!(house.agents(), Vec::<String>::new());
    house.check(&[("b", AGENT)], &["a active", "b active"]).await;
    assert_eq!(house.agents(), ["a", "b"]);
}

#[tokio::test]
async fn all_that_are_removed_at_once_go_out_together_and_what_is_left_goes_on() {
    let house = House::new();
    let (put, remove) = (["a", "b", "c", "d"].map(|id| (id, AGENT)), ["a", "b", "c"].map(|id| (id, "")));
    house.check(&put, &["a active", "b active", "c active", "d active"]).await;
    house.check(&remove, &["d active"]).await;
    assert_eq!(house.agents(), ["d"]);
}

/// A clock that sees what is wired whenever it is looked at, as it is before each wiring.
#[derive(Default)]
struct Watches(OnceLock<Arc<Wired>>, std::sync::Mutex<Vec<Arc<Snapshot>>>);

impl Watches {
    /// How often everything was wired since this was asked last.
    fn wirings(&self) -> usize {
        self.now_ms();
        let mut seen = self.1.lock().expect("no test panics with it");
        let wirings = seen.len() - 1;
        seen.drain(..wirings);
        wirings
    }
}

impl Clock for Watches {
    fn now_ms(&self) -> i64 {
        if let Some(wired) = self.0.get() {
            let (now, mut seen) = (wired.snapshot(), self.1.lock().expect("no test panics with it"));
            if seen.last().is_none_or(|last| !Arc::ptr_eq(last, &now)) {
                seen.push(now);
            }
        }
        SystemClock.now_ms()
    }
}

#[tokio::test]
async fn everything_is_wired_as_often_for_many_that_go_out_at_once_as_for_one() {
    let clock = Arc::new(Watches::default());
    let house = House::at(Arc::clone(&clock) as Arc<dyn Clock>);
    clock.0.get_or_init(|| Arc::clone(&house.roster.wired));
    let put = ["a", "b", "c", "d", "e"].map(|id| (id, AGENT));
    house.check(&put, &["a active", "b active", "c active", "d active", "e active"]).await;
    clock.wirings();
    house.check(&[("a", "")], &["b active", "c active", "d active", "e active"]).await;
    let one = clock.wirings();
    house.check(&["b", "c", "d"].map(|id| (id, "")), &["e active"]).await;
    assert!(one > 0 && clock.wirings() == one, "{one} for one");
}

#[tokio::test]
async fn a_change_that_cannot_be_used_leaves_the_one_that_works_and_a_mended_one_takes_its_place() {
    let house = House::new();
    house.check(&[("a", AGENT)], &["a active"]).await;
    let before = house.roster.snapshot();
    house.check(&[("a", "agent: {model: default, instructons: p.md}\n")], &["a active"]).await;
    let pending = || house.roster.extensions.status("a").expect("it is there").reason.unwrap_or_default();
    assert!(pending().contains("its change is not in use"), "{}", pending());
    assert_eq!(house.agents(), ["a"]);
    house.check(&[("a", &format!("summary: mended\n{AGENT}"))], &["a active"]).await;
    assert!(!pending().contains("its change"), "{}", pending());
    // Whoever began with the old one keeps it.
    assert!(before.agents.contains_key("a"));
}
