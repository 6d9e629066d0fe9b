use std::{
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    time::Duration,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::{
    content::Contents,
    discovery::{Found, Origin},
};

struct Place {
    root: tempfile::TempDir,
    store: Generations,
}

impl Place {
    /// A folder `one`, with most that a folder can have, and a file `two.md`.
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let place = Self { store: Generations::new(root.path().join("state/generations")), root };
        fs::create_dir(place.path("state")).expect("a folder");
        fs::create_dir_all(place.path("one/sub")).expect("a folder");
        place.write("one/manifest.yaml", "id: one");
        place.write("one/sub/run", "#!/bin/sh");
        place.write("one/sub/same", "id: one");
        place.write("two.md", "You are two.");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.path("one/sub/run"), mode).expect("executable");
        symlink("sub/run", place.path("one/link")).expect("a link");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
    }

    fn content_at(&self, folder: PathBuf, kind: Kind) -> Content {
        let found = Found { name: "x".into(), folder, origin: Origin::Home, kind };
        Contents::open(self.path("cache")).of(&found, None).expect("content")
    }

    fn one(&self) -> Content {
        self.content_at(self.path("one"), Kind::Folder)
    }

    fn keep(&self) -> String {
        let two = self.content_at(self.path("two.md"), Kind::File);
        let set = [("two".into(), &two, Kind::File), ("one".into(), &self.one(), Kind::Folder)];
        self.store.keep(&set).expect("kept")
    }

    /// Everything in the store, with what tells whether it was written again.
    fn stored(&self) -> BTreeMap<PathBuf, (u64, i64, i64)> {
        let folders = ["files", "sets"].map(|folder| self.path("state/generations").join(folder));
        let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder").flatten());
        let entries = entries.map(|entry| {
            let meta = entry.metadata().expect("it is there");
            (entry.path(), (meta.ino(), meta.ctime(), meta.ctime_nsec()))
        });
        entries.collect()
    }

    fn sets(&self) -> BTreeSet<String> {
        self.store.names("sets").expect("sets").into_iter().collect()
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn what_is_restored_is_what_was_kept() {
    let place = Place::new();
    let (before, name) = (place.one(), place.keep());
    fs::remove_dir_all(place.path("one")).expect("removed");
    let into = place.path("into");
    let one = place.store.restore(&name, "one", &into).expect("restored");
    assert_eq!(one, into.join("one"));
    assert_eq!(place.content_at(one.clone(), Kind::Folder).hash, before.hash);
    assert_eq!(fs::read_link(one.join("link")).expect("a link"), Path::new("sub/run"));
    assert_eq!((mode(&one.join("sub/run")), mode(&one.join("manifest.yaml"))), (0o700, 0o600));
    assert_eq!((mode(&one), mode(&one.join("sub"))), (0o700, 0o700));
    let two = place.store.restore(&name, "two", &into).expect("restored");
    assert_eq!((two.as_path(), mode(&two)), (into.join("two.md").as_path(), 0o600));
    assert_eq!(fs::read_to_string(two).expect("a file"), "You are two.");
}

#[test]
fn the_store_is_open_to_its_owner_alone_and_holds_a_file_once() {
    let place = Place::new();
    place.keep();
    let root = place.path("state/generations");
    assert_eq!(fs::read_dir(root.join("files")).expect("files").count(), 3, "two of four are the same");
    for path in [root.clone(), root.join("files"), root.join("sets")] {
        assert_eq!(mode(&path), 0o700, "{}", path.display());
    }
    for path in place.stored().keys() {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
}

#[test]
fn the_same_set_is_not_written_again_and_another_has_another_name() {
    let place = Place::new();
    let name = place.keep();
    let stored = place.stored();
    assert_eq!(place.keep(), name);
    assert_eq!(place.stored(), stored);
    let one = place.one();
    let contents = [("one", one.hash.as_str()), ("two", "x")];
    assert_eq!(Generations::name(contents), Generations::name([contents[1], contents[0]]));
    assert_ne!(Generations::name(contents), name);
    place.write("one/manifest.yaml", "id: other");
    let other = place.keep();
    assert_ne!(other, name);
    let stored_then: BTreeSet<_> = stored.keys().cloned().collect();
    let stored_now: BTreeSet<_> = place.stored().keys().cloned().collect();
    assert_eq!(stored_now.difference(&stored_then).count(), 2, "the set and the one file that is new");
}

#[test]
fn what_is_there_is_replaced_whole() {
    let place = Place::new();
    let (before, name) = (place.one(), place.keep());
    let into = place.path("into");
    fs::create_dir_all(into.join("one/old")).expect("a folder");
    fs::write(into.join("two.md"), "old").expect("a file");
    for id in ["one", "two"] {
        place.store.restore(&name, id, &into).expect("restored");
    }
    assert_eq!(place.content_at(into.join("one"), Kind::Folder).hash, before.hash);
    assert_eq!(fs::read_to_string(into.join("two.md")).expect("a file"), "You are two.");
    assert_eq!(fs::read_dir(&into).expect("a folder").count(), 2, "nothing is left over");
    // A link in the place is replaced, and where it led to is left alone.
    fs::remove_dir_all(into.join("one")).expect("removed");
    symlink(place.path("one"), into.join("one")).expect("a link");
    place.write("one/mine", "x");
    place.store.restore(&name, "one", &into).expect("restored");
    assert!(into.join("one/manifest.yaml").is_file() && !into.join("one/mine").exists());
    assert!(place.path("one/mine").is_file());
}

#[test]
fn a_damaged_or_missing_file_is_named_and_what_is_there_stays() {
    let place = Place::new();
    let name = place.keep();
    let into = place.path("into");
    place.store.restore(&name, "one", &into).expect("restored");
    let file = place.one().files[0].hash.clone();
    let path = place.store.file(&file);
    let damages: [fn(&Path); 3] = [
        |path| fs::write(path, "id: two").expect("written"),
        |path| fs::write(path, "").expect("written"),
        |path| fs::remove_file(path).expect("removed"),
    ];
    for damage in damages {
        damage(&path);
        let error = place.store.restore(&name, "one", &into).expect_err("it is damaged").to_string();
        assert!(error.contains(&file), "{error}");
        assert!(into.join("one/sub/run").is_file());
        assert_eq!(fs::read_dir(&into).expect("a folder").count(), 1, "nothing is left over");
    }
    fs::write(&path, "").expect("as a loss of power may leave it");
    place.keep();
    place.store.restore(&name, "one", &into).expect("the file was kept again");
}

#[test]
fn a_set_that_was_altered_is_refused() {
    let place = Place::new();
    let name = place.keep();
    let path = place.store.set(&name);
    let text = fs::read_to_string(&path).expect("a set");
    for (from, to) in [
        ("sub/same", "sub/sama"),
        ("\"executable\":true", "\"executable\":false"),
        ("\"target\":\"sub/run\"", "\"target\":\"/bin/sh\""),
        ("\"two\":", "\"owt\":"),
        ("{", ""),
    ] {
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replacen(from, to, 1)).expect("written");
        let error = place.store.read(&name).expect_err(from).to_string();
        assert!(error.contains(&name) && error.contains("damaged"), "{error}");
        assert!(place.store.restore(&name, "one", &place.path("into")).is_err());
    }
    place.keep();
    place.store.read(&name).expect("kept again");
}

#[test]
fn a_set_cannot_write_outside_of_where_it_is_restored() {
    let place = Place::new();
    let mut content = place.one();
    content.files[0].path = "../evil".into();
    let files = content.files.iter().map(|f| (f.path.as_path(), f.hash.as_str(), f.executable));
    content.hash = hash_of(files, &content.links, &content.others);
    let name = place.store.keep(&[("one".into(), &content, Kind::Folder)]).expect("kept");
    let error = place.store.restore(&name, "one", &place.path("into")).expect_err("it leaves").to_string();
    assert!(error.contains("../evil"), "{error}");
    assert!(place.store.keep(&[("../x".into(), &place.one(), Kind::Folder)]).is_err());
    assert!(place.store.read("../../etc/passwd").is_err());
    assert!(place.store.restore(&place.keep(), "nobody", &place.path("into")).is_err());
}

#[test]
fn a_file_that_changed_since_it_was_hashed_is_not_kept() {
    let place = Place::new();
    let one = place.one();
    let keep = || place.store.keep(&[("one".into(), &one, Kind::Folder)]);
    let changes: [fn(&Path); 3] = [
        |path| fs::write(path, "id: two").expect("written"),
        |path| {
            fs::remove_file(path).expect("removed");
            symlink("/etc/hostname", path).expect("a link");
        },
        |path| {
            fs::remove_file(path).expect("removed");
            mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        },
    ];
    for change in changes {
        change(&place.path("one/manifest.yaml"));
        // The same bytes lie in another file, which would do.
        place.write("one/sub/same", "other");
        let error = keep().expect_err("it changed").to_string();
        assert!(error.contains("manifest.yaml"), "{error}");
        assert_eq!(place.sets(), BTreeSet::new(), "a set is written last");
    }
}

#[test]
fn pruning_leaves_the_newest_three_and_those_named_with_their_files() {
    let place = Place::new();
    place.store.prune(&[]).expect("an empty store is fine");
    let mut names = Vec::new();
    for at in 0..6 {
        place.write("two.md", &format!("You are {at}."));
        let name = place.keep();
        let set = fs::File::options().write(true).open(place.store.set(&name)).expect("a set");
        set.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at)).expect("a time");
        names.push(name);
    }
    fs::write(place.path("state/generations/files/.half.1-2"), "x").expect("a file");
    fs::write(place.path("state/generations/sets/.half.json.1-2"), "x").expect("a file");
    place.store.prune(&[&names[1]]).expect("pruned");
    let left: BTreeSet<String> = [1, 3, 4, 5].map(|at: usize| format!("{}.json", names[at])).into();
    assert_eq!(place.sets(), left);
    assert_eq!(place.store.names("files").expect("files").len(), 2 + 4, "what `one` has, and four of `two`");
    for at in [1, 3, 4, 5] {
        place.store.restore(&names[at], "two", &place.path("into")).expect("restored");
    }
}

#[test]
fn nothing_is_removed_where_a_set_to_be_kept_is_damaged() {
    let place = Place::new();
    let name = place.keep();
    fs::write(place.store.set(&name), "{").expect("damaged");
    let stored = place.stored();
    let error = place.store.prune(&[&name]).expect_err("it is damaged").to_string();
    assert!(error.contains(&name), "{error}");
    assert_eq!(place.stored(), stored);
    place.store.prune(&[]).expect("pruned");
    assert_eq!(place.stored().len(), 0, "nobody can return to it");
}

#[test]
fn a_store_whose_home_was_moved_is_not_made_again_in_the_old_place() {
    let place = Place::new();
    let name = place.keep();
    fs::rename(place.path("state"), place.path("moved")).expect("it is there");
    let content = place.one();
    let set = [("one".into(), &content, Kind::Folder)];
    assert_eq!(place.store.keep(&set).expect_err("its folder is gone").kind(), io::ErrorKind::NotFound);
    let store = Generations::new(place.path("moved/generations"));
    let into = place.path("state/restored");
    assert_eq!(store.restore(&name, "one", &into).expect_err("the same").kind(), io::ErrorKind::NotFound);
    assert!(!place.path("state").exists());
}
