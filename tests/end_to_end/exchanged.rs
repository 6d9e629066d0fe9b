//! An extension exchanges a folder of its draft for a link while the draft is handed to the kernel. What lies behind the link
//! is neither copied nor told.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use crate::harness::{Daemon, model_server::ModelServer};

/// How many drafts are handed over one after another.
const AT_ONCE: usize = 20;

/// Between two exchanges of all of them.
const PAUSE: Duration = Duration::from_micros(100);

const SECRET: &str = "canary-behind-a-link";

/// A home with a confined extension that holds the right `control`, and a folder that is none of its business.
struct Scene {
    daemon: Daemon,
    data: PathBuf,
    token: String,
    _server: ModelServer,
}

/// What came of drafts.
#[derive(Debug, Default)]
struct Outcome {
    granted: usize,
    refused: usize,
    /// How often something of what lies behind a link was copied or told.
    won: usize,
}

impl Scene {
    fn new() -> Self {
        let server = ModelServer::obedient();
        let mut daemon = Daemon::home(&server.config());
        daemon.plugin_in("process", "torture", "torture", "rights: [control]\n");
        daemon.run();
        daemon.until_extension("torture", "active");
        let home = daemon.path().canonicalize().expect("it is there");
        let token = fs::read_to_string(home.join("run/token")).expect("a token").trim().to_owned();
        Self { data: home.join("data/torture"), token, daemon, _server: server }
    }

    /// Tries so often, each time with another draft; a quarter of them each: the extension adds a draft whose folder is
    /// exchanged, or the folder above it; it has such a one checked; the operator adds one.
    fn tries(&self, number: usize) -> Outcome {
        let mut sum = Outcome::default();
        for round in 0..number.div_ceil(AT_ONCE) {
            let (method, above) = [
                ("extensions.add", false),
                ("extensions.add", true),
                ("extensions.check", true),
                ("operator", false),
            ][round % 4];
            let drafts: Vec<Draft> = (0..AT_ONCE).map(|at| Draft::new(self, round, at, above)).collect();
            let ended = AtomicBool::new(false);
            let one = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !ended.load(Ordering::Acquire) {
                        drafts.iter().for_each(Draft::exchange);
                        // Much less than a copy takes. Without it this thread would have a core for itself.
                        std::thread::sleep(PAUSE);
                    }
                });
                // Also where a test fails here: the scope waits for the other thread.
                let _ended = End(&ended);
                match method {
                    "operator" => self.by_operator(&drafts),
                    method => self.by_extension(method, &drafts),
                }
            });
            sum.granted += one.granted;
            sum.refused += one.refused;
            sum.won += one.won + drafts.iter().filter(|draft| self.taken(draft)).count();
            self.clear(&drafts);
        }
        sum
    }

    fn by_extension(&self, method: &str, drafts: &[Draft]) -> Outcome {
        let paths: Vec<_> = drafts.iter().map(|draft| &draft.path).collect();
        let ask = json!({"method": method, "paths": paths, "secret": SECRET});
        let turn = self.daemon.turn("s", &format!("torture_control_all {ask}"));
        let text = turn["content"].as_str().unwrap_or_default();
        let numbers: Vec<usize> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let [granted, refused, won] = numbers[..] else { panic!("{turn}") };
        Outcome { granted, refused, won }
    }

    fn by_operator(&self, drafts: &[Draft]) -> Outcome {
        let mut client = self.daemon.client();
        let mut sum = Outcome::default();
        for draft in drafts {
            let answer = client.ask("extensions.add", json!({"path": draft.path}));
            *(if answer.is_ok() { &mut sum.granted } else { &mut sum.refused }) += 1;
            sum.won += usize::from(format!("{answer:?}").contains(SECRET));
        }
        sum
    }

    /// Whether something of what lies behind the links is in the copy.
    fn taken(&self, draft: &Draft) -> bool {
        let copy = self.daemon.path().join("extensions").join(&draft.id);
        let holds = |path: &Path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.contains(SECRET) || text.contains(&self.token)
        };
        files(&copy).iter().any(|path| holds(path))
    }

    /// Takes away what was made.
    fn clear(&self, drafts: &[Draft]) {
        for draft in drafts {
            let copy = self.daemon.path().join("extensions").join(&draft.id);
            for folder in [copy, draft.whole.clone()] {
                if folder.exists() {
                    fs::remove_dir_all(folder).expect("it is ours");
                }
            }
        }
    }
}

/// Ends the exchanges when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A draft of an agent that is not to work, since what becomes of it then is of no interest here, and a link that takes the place of a folder and gives it back.
struct Draft {
    id: String,
    /// What is handed over.
    path: PathBuf,
    /// Everything of it.
    whole: PathBuf,
    folder: PathBuf,
    link: PathBuf,
}

impl Draft {
    fn new(scene: &Scene, round: usize, at: usize, above: bool) -> Self {
        let id = format!("r{round}-{at}");
        let whole = scene.data.join(format!("whole-{id}"));
        let path = whole.join("in").join(&id);
        fs::create_dir_all(path.join("sub")).expect("a folder");
        let manifest = format!(
            "id: {id}\nname: Draft\ndescription: Works.\nenabled: false\nagent: {{model: default, instructions: \"\"}}\n"
        );
        fs::write(path.join("manifest.yaml"), &manifest).expect("a file");
        fs::write(path.join("sub/token"), "nothing").expect("a file");
        let home = scene.daemon.path().canonicalize().expect("it is there");
        let (folder, link, to) = match above {
            // What it leads to is an extension of the same name, with a fault that is quoted where it is told.
            true => {
                let bait = home.join("bait").join(&id);
                fs::create_dir_all(&bait).expect("a folder");
                fs::write(bait.join("manifest.yaml"), format!("{manifest}{SECRET}: x\n")).expect("a file");
                (whole.join("in"), whole.join("link"), home.join("bait"))
            }
            false => (path.join("sub"), whole.join("link"), home.join("run")),
        };
        symlink(to, &link).expect("a link");
        Self { id, path, whole, folder, link }
    }

    fn exchange(&self) {
        // One that is being taken away is no longer there.
        let _ = renameat_with(CWD, &self.folder, CWD, &self.link, RenameFlags::EXCHANGE);
    }
}

/// The regular files in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let each = entries.flat_map(|entry| match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
        true => files(&entry.path()),
        false => vec![entry.path()],
    });
    each.collect()
}

fn nobody_wins(tries: usize) {
    let scene = Scene::new();
    let outcome = scene.tries(tries);
    println!("{tries} tries: {outcome:?}");
    assert_eq!(outcome.won, 0, "{outcome:?}");
    assert_eq!(outcome.granted + outcome.refused, tries, "each was answered: {outcome:?}");
    assert!(outcome.granted > 0 && outcome.refused > 0, "both were met: {outcome:?}");
}

#[test]
fn what_is_exchanged_for_a_link_while_it_is_handed_over_is_not_followed() {
    nobody_wins(40);
}

#[test]
#[ignore = "it takes minutes"]
fn five_thousand_exchanges_win_nothing() {
    nobody_wins(5_000);
}
