use std::{
    fs, iter,
    os::unix::fs::symlink,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use super::*;

/// Far more than is ever needed: it only bounds how long a failure takes.
const PATIENCE: Duration = Duration::from_secs(20);

type Start = fn(&Arc<Wanted>, &Arc<Shared>) -> Source;

/// As it is, and as where the system has no room.
const BOTH: [Start; 2] = [Source::start, |wanted, _| {
    Source::fall_back(
        &notify::Error::new(notify::ErrorKind::MaxFilesWatch),
        wanted,
        Duration::from_millis(20),
    )
}];

struct Place {
    home: tempfile::TempDir,
    told: Receiver<Changes>,
    watch: Option<Watch>,
}

impl Place {
    /// Watches `extensions` and `drupe.yaml` in a home that `prepare` made.
    fn new(start: Start, prepare: impl FnOnce(&Path)) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        prepare(home.path());
        let (roots, files) = (vec![home.path().join("extensions")], vec![home.path().join("drupe.yaml")]);
        let (tell, told) = mpsc::channel();
        let watch = begin(roots, files, start, move |changes| {
            // The test may be over.
            let _ = tell.send(changes);
        });
        Self { home, told, watch: Some(watch.expect("a thread")) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str) {
        fs::write(self.path(name), format!("{:?}", Instant::now())).expect("a file");
    }

    fn make(&self, name: &str) {
        fs::create_dir_all(self.path(name)).expect("a folder");
    }

    fn next(&self) -> Changes {
        self.told.recv_timeout(PATIENCE).expect("it is told")
    }

    /// Waits until it was told that the roots have changed.
    fn roots(&self) {
        while !self.next().roots {}
    }

    /// Waits until all was told that happened before: a change of the file comes after it. Returns how often something
    /// was told.
    fn settle(&self) -> usize {
        self.write("drupe.yaml");
        1 + iter::repeat_with(|| self.next()).take_while(|told| told.files.is_empty()).count()
    }

    /// A change of the file is all that is told: the roots have not changed.
    fn only_the_file(&self) {
        self.write("drupe.yaml");
        assert_eq!(self.next(), Changes { roots: false, files: vec![self.path("drupe.yaml")] });
    }
}

fn with_one(home: &Path) {
    fs::create_dir_all(home.join("extensions/one/sub")).expect("a folder");
    fs::write(home.join("extensions/one/manifest.yaml"), "x").expect("a file");
}

#[test]
fn a_change_an_addition_and_a_removal_in_a_root_are_told() {
    for start in BOTH {
        let place = Place::new(start, with_one);
        place.write("extensions/one/manifest.yaml");
        place.roots();
        place.write("extensions/one/sub/prompt.md");
        place.roots();
        place.write("extensions/two.md");
        place.roots();
        fs::rename(place.path("extensions/two.md"), place.path("extensions/three.md")).expect("renamed");
        place.roots();
        fs::remove_dir_all(place.path("extensions/one")).expect("removed");
        place.roots();
    }
}

#[test]
fn what_is_in_a_new_folder_is_watched_too() {
    for start in BOTH {
        let place = Place::new(start, with_one);
        place.make("extensions/new/a/b/c");
        place.write("extensions/new/a/b/c/x");
        place.roots();
        place.write("extensions/new/a/b/c/x");
        place.roots();
        // A folder that is moved in is one in which nothing happened yet.
        place.make("elsewhere/moved/sub");
        fs::rename(place.path("elsewhere/moved"), place.path("extensions/moved")).expect("moved");
        place.roots();
        place.write("extensions/moved/sub/x");
        place.roots();
        fs::rename(place.path("extensions/moved"), place.path("extensions/again")).expect("moved");
        place.roots();
        place.write("extensions/again/sub/x");
        place.roots();
    }
}

#[test]
fn hidden_names_and_what_cargo_builds_are_of_no_interest() {
    for start in BOTH {
        let place = Place::new(start, |home| {
            with_one(home);
            fs::create_dir_all(home.join("extensions/one/target")).expect("a folder");
            fs::create_dir_all(home.join("extensions/.adding-x/one")).expect("a folder");
        });
        for name in ["one/target/x", "one/.manifest.yaml.swp", ".hidden", ".adding-x/one/x", "one/sub/.x"] {
            place.write(&format!("extensions/{name}"));
        }
        place.make("extensions/one/.git/objects");
        place.only_the_file();
        // Not the name alone, but the place: an extension may have this id.
        place.make("extensions/target");
        place.roots();
        place.write("extensions/target/manifest.yaml");
        place.roots();
        place.make("extensions/one/sub/target");
        place.roots();
        place.write("extensions/one/sub/target/x");
        place.roots();
    }
}

#[test]
fn reading_changes_nothing() {
    let place = Place::new(Source::start, with_one);
    fs::read(place.path("extensions/one/manifest.yaml")).expect("read");
    fs::read_dir(place.path("extensions/one")).expect("read").for_each(drop);
    place.only_the_file();
}

#[test]
fn a_file_is_told_when_it_is_made_written_replaced_and_removed_and_its_neighbours_are_not() {
    for start in BOTH {
        let place = Place::new(start, with_one);
        let file = Changes { roots: false, files: vec![place.path("drupe.yaml")] };
        place.write("journal.db");
        place.write("drupe.yaml");
        assert_eq!(place.next(), file, "made");
        place.write("drupe.yaml");
        assert_eq!(place.next(), file, "written");
        // As editors do.
        place.write("drupe.yaml~");
        fs::rename(place.path("drupe.yaml~"), place.path("drupe.yaml")).expect("replaced");
        assert_eq!(place.next(), file, "replaced");
        fs::remove_file(place.path("drupe.yaml")).expect("removed");
        assert_eq!(place.next(), file, "removed");
    }
}

#[test]
fn a_file_that_is_a_link_is_told_when_what_it_leads_to_changes() {
    for start in BOTH {
        let place = Place::new(start, |home| {
            // Were it missing, all names in the home would be told.
            fs::create_dir(home.join("extensions")).expect("a folder");
            for folder in ["v1", "v2"] {
                fs::create_dir(home.join(folder)).expect("a folder");
                fs::write(home.join(folder).join("real.yaml"), "x").expect("a file");
            }
            symlink("v1/real.yaml", home.join("drupe.yaml")).expect("a link");
        });
        let file = Changes { roots: false, files: vec![place.path("drupe.yaml")] };
        place.write("v1/real.yaml");
        assert_eq!(place.next(), file);
        symlink("v2/real.yaml", place.path("new")).expect("a link");
        fs::rename(place.path("new"), place.path("drupe.yaml")).expect("replaced");
        assert_eq!(place.next(), file);
        place.write("v2/real.yaml");
        assert_eq!(place.next(), file);
    }
}

#[test]
fn single_files_are_seldom_looked_at_where_the_system_tells_of_them() {
    let home = tempfile::tempdir().expect("a folder");
    let told = places::tells_of_all(home.path()).expect("a file system");
    for (path, told) in [(home.path().join("a/b"), told), ("/proc/self/status".into(), false)] {
        let wanted = Arc::new(Wanted { roots: Vec::new(), files: vec![path] });
        let shared = Arc::<Shared>::default();
        let names = Names::start(&wanted, &shared);
        // It asks for a look once it is known.
        assert!(matches!(shared.wait(Some(PATIENCE)), Woken::Tick));
        assert_eq!(names.interval() > PATIENCE, told, "{wanted:?}");
    }
}

#[test]
fn a_root_that_is_made_later_or_removed_and_made_again_is_watched() {
    for start in BOTH {
        let place = Place::new(start, |_| {});
        for _ in 0..3 {
            place.make("extensions");
            place.roots();
            place.make("extensions/one");
            place.roots();
            place.write("extensions/one/manifest.yaml");
            place.roots();
            fs::remove_dir_all(place.path("extensions")).expect("removed");
            place.roots();
        }
        // At once, so that nobody sees it missing.
        place.make("extensions/one");
        place.roots();
        place.make("other/two");
        fs::rename(place.path("extensions"), place.path("old")).expect("renamed");
        fs::rename(place.path("other"), place.path("extensions")).expect("renamed");
        place.roots();
        place.write("extensions/two/manifest.yaml");
        place.roots();
        place.settle();
        place.write("old/one/manifest.yaml");
        place.only_the_file();
    }
}

#[test]
fn a_root_whose_folders_above_are_missing_is_watched_when_they_come() {
    for start in BOTH {
        let home = tempfile::tempdir().expect("a folder");
        let root = home.path().join("a/b/extensions");
        let (tell, told) = mpsc::channel();
        let watch = begin(vec![root.clone()], vec![], start, move |changes| {
            let _ = tell.send(changes);
        });
        let watch = watch.expect("a thread");
        for _ in 0..2 {
            fs::create_dir_all(root.join("one")).expect("a folder");
            assert!(told.recv_timeout(PATIENCE).expect("it is told").roots);
            fs::write(root.join("one/manifest.yaml"), "x").expect("a file");
            assert!(told.recv_timeout(PATIENCE).expect("it is told").roots);
            fs::remove_dir_all(home.path().join("a")).expect("removed");
            assert!(told.recv_timeout(PATIENCE).expect("it is told").roots);
        }
        drop(watch);
    }
}

#[test]
fn a_root_that_is_a_link_is_watched_where_it_leads_to() {
    for start in BOTH {
        let place = Place::new(start, |home| {
            fs::create_dir_all(home.join(".real/one")).expect("a folder");
            fs::create_dir_all(home.join("other/two")).expect("a folder");
            symlink(".real", home.join("extensions")).expect("a link");
        });
        place.write(".real/one/manifest.yaml");
        place.roots();
        symlink("other", place.path("new")).expect("a link");
        fs::rename(place.path("new"), place.path("extensions")).expect("replaced");
        place.roots();
        place.write("other/two/manifest.yaml");
        place.roots();
    }
}

#[test]
fn many_changes_are_told_together() {
    let place = Place::new(Source::start, with_one);
    for at in 0..200 {
        place.write(&format!("extensions/{at}.md"));
    }
    let told = place.settle();
    // Written within the time in which changes are gathered, or a few times that on a busy machine.
    assert!(told < 20, "{told}");
}

#[test]
fn a_change_is_told_after_quiet_and_at_the_latest_after_its_time() {
    let (start, ms) = (Instant::now(), Duration::from_millis);
    let left = |last, now| pending::left(start, start + ms(last), start + ms(now));
    assert_eq!(left(0, 0), ms(150));
    assert_eq!(left(100, 120), ms(130));
    assert_eq!(left(100, 250), ms(0));
    assert_eq!(left(590, 599), ms(1), "at the latest");
    assert_eq!(left(700, 700), ms(0));
}

#[test]
fn a_loss_of_events_means_that_everything_in_the_roots_changed_and_is_watched_anew() {
    let place = Place::new(Source::start, with_one);
    let shared = &place.watch.as_ref().expect("it watches").shared;
    shared.add(trees::WatchedTrees::note_loss);
    assert_eq!(place.next(), Changes { roots: true, files: vec![] });
    place.write("extensions/one/manifest.yaml");
    place.roots();
}

#[test]
fn more_new_folders_than_are_remembered_are_all_watched() {
    let place = Place::new(Source::start, with_one);
    for at in 0..1500 {
        place.make(&format!("extensions/e{at}/sub"));
    }
    place.settle();
    place.write("extensions/e0/sub/x");
    place.roots();
}

#[test]
fn its_thread_ends_when_it_is_dropped() {
    for start in BOTH {
        let mut place = Place::new(start, with_one);
        drop(place.watch.take());
        // The thread owns what tells.
        loop {
            match place.told.recv_timeout(PATIENCE) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the thread goes on"),
            }
        }
    }
}

#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "the figures are for whoever asked for them")]
fn how_long_five_thousand_folders_take() {
    for (start, name) in BOTH.into_iter().zip(["events", "polling"]) {
        let home = tempfile::tempdir().expect("a folder");
        for at in 0..5000 {
            let folder = home.path().join(format!("extensions/e{at}"));
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("manifest.yaml"), "x").expect("a file");
            fs::write(folder.join("prompt.md"), "x").expect("a file");
        }
        let (tell, told) = mpsc::channel();
        let began = Instant::now();
        let watch = begin(vec![home.path().join("extensions")], vec![], start, move |changes| {
            let _ = tell.send(changes);
        });
        let started = began.elapsed();
        fs::write(home.path().join("extensions/e77/prompt.md"), "y").expect("a file");
        told.recv_timeout(PATIENCE).expect("it is told");
        println!("{name}: begun after {started:?}, told after {:?}", began.elapsed() - started);
        drop(watch);
    }
}
