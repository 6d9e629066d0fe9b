use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::discovery::Origin;

/// So far ahead that every file is old enough to be remembered.
fn later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(60)
}

struct Place {
    root: tempfile::TempDir,
    one: Found,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("one");
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("manifest.yaml"), "id: one").expect("a file");
        let one = Found { name: "one".into(), folder, origin: Origin::Home, kind: Kind::Folder };
        Self { root, one }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.one.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn cache(&self) -> PathBuf {
        self.root.path().join("state/hashes.json")
    }

    fn contents(&self) -> Contents {
        Contents::with_clock(self.cache(), later)
    }

    /// What is there, read without a cache.
    fn content(&self) -> Content {
        self.contents().of(&self.one, None).expect("content")
    }

    fn hash(&self) -> String {
        self.content().hash
    }
}

#[test]
fn the_hash_is_another_one_after_every_change_that_counts() {
    type Change = fn(&Place);
    let changes: [(&str, Change); 9] = [
        ("other bytes", |p| p.write("a.md", "2")),
        ("a new file", |p| p.write("b.md", "1")),
        ("a file less", |p| fs::remove_file(p.path("a.md")).expect("removed")),
        ("another name", |p| fs::rename(p.path("a.md"), p.path("c.md")).expect("renamed")),
        ("another folder", |p| fs::rename(p.path("sub"), p.path("sup")).expect("renamed")),
        ("made executable", |p| {
            fs::set_permissions(p.path("a.md"), fs::Permissions::from_mode(0o755)).expect("changed");
        }),
        ("a link", |p| symlink("a.md", p.path("link")).expect("a link")),
        ("a pipe", |p| mknodat(CWD, p.path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe")),
        ("a file in a folder `target` further down", |p| p.write("sub/target/x", "1")),
    ];
    for (name, change) in changes {
        let place = Place::new();
        place.write("a.md", "1");
        place.write("sub/x", "1");
        let before = place.hash();
        assert_eq!(place.hash(), before, "the same twice");
        change(&place);
        assert_ne!(place.hash(), before, "{name}");
    }
}

#[test]
fn a_link_counts_by_its_text_and_is_not_followed() {
    let place = Place::new();
    symlink("/dev/zero", place.path("link")).expect("a link");
    let content = place.content();
    assert_eq!(content.links, [Link { path: "link".into(), target: "/dev/zero".into() }]);
    fs::remove_file(place.path("link")).expect("removed");
    symlink("/dev/null", place.path("link")).expect("a link");
    assert_ne!(place.hash(), content.hash);
}

#[test]
fn hidden_names_what_cargo_builds_and_empty_folders_do_not_count() {
    let place = Place::new();
    let before = place.hash();
    for name in [".git/HEAD", ".a.md.swp", "target/release/libone.so", "sub/.hidden"] {
        place.write(name, "x");
    }
    assert_eq!(place.hash(), before);
}

#[test]
fn what_only_a_compiler_reads_does_not_count() {
    let place = Place::new();
    let before = place.hash();
    for name in ["Cargo.toml", "Cargo.lock", "src/lib.rs", "build.rs"] {
        place.write(name, "x");
    }
    assert_eq!(place.hash(), before);
    place.write("src/prompt.md", "x");
    assert_ne!(place.hash(), before);
}

#[test]
fn a_file_of_a_single_agent_is_its_content() {
    let place = Place::new();
    let path = place.root.path().join("two.md");
    fs::write(&path, "x").expect("a file");
    let two = Found { name: "two".into(), folder: path.clone(), kind: Kind::File, ..place.one.clone() };
    let content = place.contents().of(&two, None).expect("content");
    let [file] = content.files.as_slice() else { panic!("{content:?}") };
    assert_eq!((file.path.as_path(), file.size), (Path::new("two.md"), 1));
    assert_eq!(file.hash, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881");
    fs::write(&path, "y").expect("a file");
    assert_ne!(place.contents().of(&two, None).expect("content").hash, content.hash);
}

#[test]
fn a_library_from_elsewhere_counts_and_one_in_the_folder_counts_once() {
    let place = Place::new();
    let of = |library: &Path| place.contents().of(&place.one, Some(library));
    let bare = place.hash();
    place.write("target/release/libone.so", "1");
    let built = of(&place.path("target/release/libone.so")).expect("content");
    assert_eq!(built.files[0].path, Path::new("libone.so"), "sorted by its name");
    assert_ne!(built.hash, bare);
    place.write("target/release/libone.so", "2");
    assert_ne!(of(&place.path("target/release/libone.so")).expect("content").hash, built.hash);
    place.write("libone.so", "1");
    let own = of(&place.path("libone.so")).expect("content");
    assert_eq!(own.hash, built.hash, "the same content as with the library in the folder");
    let clash = of(&place.path("target/release/libone.so"));
    assert!(matches!(clash, Err(ContentError::LibraryName { .. })), "{clash:?}");
}

#[test]
fn what_is_over_a_bound_is_refused_by_name() {
    let refused = |place: &Place, bound: &str| {
        let error = place.contents().of(&place.one, None).expect_err("it is too large").to_string();
        assert!(error.contains(bound) && error.contains("/one`"), "{error}");
    };
    let deep = Place::new();
    deep.write(&format!("{}x", "d/".repeat(DEPTH)), "at the bound");
    deep.content();
    deep.write(&format!("{}x", "d/".repeat(DEPTH + 1)), "over it");
    refused(&deep, "deeper than 16");
    let large = Place::new();
    // Without bytes on the disk; and refused before any is read.
    fs::File::create(large.path("x")).and_then(|f| f.set_len(BYTES)).expect("a file");
    refused(&large, "512 MiB");
    let many = Place::new();
    (1..ENTRIES).for_each(|at| many.write(&at.to_string(), ""));
    many.content();
    many.write("one more", "");
    refused(&many, "4096");
}

#[test]
fn a_name_that_is_not_utf_8_is_refused_and_shown_escaped() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let place = Place::new();
    fs::write(place.one.folder.join(OsStr::from_bytes(b"\xff\x1b")), "x").expect("a file");
    let error = place.contents().of(&place.one, None).expect_err("no name").to_string();
    assert!(error.contains("\\xff\\x1b"), "{error}");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_not_hashed() {
    let place = Place::new();
    let changing = |disturb: &dyn Fn(&Path)| {
        place.write("a.md", "1");
        let seen = walk::folder(&place.one.folder).expect("a folder");
        let one = seen.iter().find(|one| one.path == "a.md").expect("it is there");
        let walk::What::File { identity, .. } = &one.what else { panic!("a file") };
        cache::hash_while(one, identity, || {}).expect("undisturbed");
        matches!(cache::hash_while(one, identity, || disturb(&one.from)), Err(ContentError::Changing { .. }))
    };
    assert!(changing(&|path| {
        let file = fs::OpenOptions::new().append(true).open(path);
        file.and_then(|mut f| f.write_all(b"2")).expect("longer");
    }));
    assert!(changing(&|path| {
        let file = fs::OpenOptions::new().write(true).open(path).expect("a file");
        file.set_modified(SystemTime::UNIX_EPOCH).expect("another time");
    }));
}

#[test]
fn a_file_that_holds_more_than_it_says_is_not_hashed() {
    let meta = fs::metadata("/proc/version").expect("it is there");
    let identity = Identity::of(&meta);
    let what = walk::What::File { identity, size: meta.len(), executable: false };
    let one = walk::Seen { path: "version".into(), from: "/proc/version".into(), what };
    let hashed = cache::hash_while(&one, &identity, || {});
    assert!(matches!(hashed, Err(ContentError::Changing { .. })), "{hashed:?}");
}

#[test]
fn what_is_disturbed_is_tried_three_times_and_then_said_to_be_written() {
    let changing = || ContentError::Changing { path: "/x/a.md".into() };
    let mut tries = 0;
    let given_up = steadily(|| -> Result<(), _> {
        tries += 1;
        Err(changing())
    });
    assert_eq!(
        (tries, given_up.map_err(|e| e.to_string())),
        (3, Err("`/x/a.md` is being written; try again when that is done".into()))
    );
    tries = 0;
    let third = steadily(|| {
        tries += 1;
        if tries < 3 { Err(changing()) } else { Ok(tries) }
    });
    assert!(matches!(third, Ok(3)));
}

#[test]
fn a_file_is_not_read_again_while_it_is_the_same() {
    let place = Place::new();
    place.write("a.md", "1");
    let contents = place.contents();
    let first = contents.of(&place.one, None).expect("content");
    contents.save().expect("saved");
    // A forged cache shows that it is believed, also by the next start.
    let text = fs::read_to_string(place.cache()).expect("a cache");
    let hash = &first.files[0].hash;
    fs::write(place.cache(), text.replace(hash.as_str(), "forged")).expect("written");
    let next = place.contents();
    assert_eq!(next.of(&place.one, None).expect("content").files[0].hash, "forged");
    place.write("a.md", "2");
    let changed = next.of(&place.one, None).expect("content");
    assert!(changed.files[0].hash.len() == 64 && changed.files[0].hash != *hash);
}

#[test]
fn a_library_that_was_built_elsewhere_is_not_read_again_after_a_look_at_the_folder_alone() {
    let place = Place::new();
    let library = place.root.path().join("libone.so");
    fs::write(&library, "code").expect("a file");
    let contents = place.contents();
    let hash =
        |contents: &Contents| contents.of(&place.one, Some(&library)).expect("content").files.remove(0).hash;
    let first = hash(&contents);
    contents.of(&place.one, None).expect("content");
    contents.save().expect("saved");
    let text = fs::read_to_string(place.cache()).expect("a cache");
    assert!(text.contains(&first), "it is remembered: {text}");
    fs::write(place.cache(), text.replace(first.as_str(), "forged")).expect("written");
    let next = place.contents();
    next.of(&place.one, None).expect("content");
    assert_eq!(hash(&next), "forged");
    fs::write(&library, "other code").expect("a file");
    assert!(![first.as_str(), "forged"].contains(&hash(&next).as_str()));
}

#[test]
fn a_file_that_was_written_just_before_it_was_read_is_not_remembered() {
    // The moment of the last change, one that is too soon after it, and one that is not.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    fn after(milliseconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH
            + Duration::from_nanos(WRITTEN.load(Ordering::Relaxed))
            + Duration::from_millis(milliseconds)
    }
    let place = Place::new();
    let meta = fs::metadata(place.path("manifest.yaml")).expect("it is there");
    let written = meta.modified().expect("a time").duration_since(SystemTime::UNIX_EPOCH).expect("later");
    WRITTEN.store(u64::try_from(written.as_nanos()).expect("in this age"), Ordering::Relaxed);
    let remembered = |now: fn() -> SystemTime| {
        let contents = Contents::with_clock(place.cache(), now);
        contents.of(&place.one, None).expect("content");
        contents.save().expect("saved");
        fs::read_to_string(place.cache()).is_ok_and(|text| text.contains("manifest.yaml"))
    };
    assert!(!remembered(|| after(1_999)));
    assert!(remembered(|| after(2_000)));
}

#[test]
fn a_damaged_cache_is_an_empty_one() {
    let place = Place::new();
    let hash = place.hash();
    let contents = place.contents();
    contents.of(&place.one, None).expect("content");
    contents.save().expect("saved");
    let text = fs::read_to_string(place.cache()).expect("a cache");
    let file = place.content().files.remove(0).hash;
    let newer = text.replace(file.as_str(), "forged").replace("\"form\":1", "\"form\":99");
    for damaged in ["", "{", "\u{0}\u{0}", "[]", &newer, &text[..text.len() / 2]] {
        fs::write(place.cache(), damaged).expect("written");
        let contents = place.contents();
        assert_eq!(contents.of(&place.one, None).expect("content").hash, hash);
        contents.save().expect("saved");
        assert!(fs::read_to_string(place.cache()).expect("a cache").contains("manifest.yaml"));
    }
}

#[test]
fn the_cache_is_written_only_when_it_changed_and_forgets_what_is_gone() {
    let place = Place::new();
    place.write("a.md", "1");
    let contents = place.contents();
    contents.of(&place.one, None).expect("content");
    contents.save().expect("saved");
    let mode = fs::metadata(place.cache()).expect("a cache").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let written = || Identity::of(&fs::metadata(place.cache()).expect("a cache"));
    let first = written();
    for contents in [contents, place.contents()] {
        contents.of(&place.one, None).expect("content");
        contents.save().expect("saved");
        assert_eq!(written(), first, "nothing is new");
    }
    let text = || fs::read_to_string(place.cache()).expect("a cache");
    fs::remove_file(place.path("a.md")).expect("removed");
    let contents = place.contents();
    contents.of(&place.one, None).expect("content");
    contents.save().expect("saved");
    assert!(!text().contains("a.md") && text().contains("manifest.yaml"));
    fs::remove_dir_all(&place.one.folder).expect("removed");
    place.contents().save().expect("saved");
    assert!(!text().contains("manifest.yaml"));
}

#[test]
fn an_unreadable_folder_is_named() {
    let place = Place::new();
    fs::remove_dir_all(&place.one.folder).expect("removed");
    let error = place.contents().of(&place.one, None).expect_err("it is gone").to_string();
    assert!(error.contains("/one` cannot be read"), "{error}");
}

#[test]
fn several_threads_may_ask_at_once() {
    let place = Place::new();
    let (hash, contents) = (place.hash(), place.contents());
    let (results, hashes) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| results.send(contents.of(&place.one, None).expect("content").hash));
        }
    });
    drop(results);
    assert_eq!(hashes.iter().filter(|h| *h == hash).count(), 8);
}

#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "the figures are for whoever asked for them")]
fn how_long_a_thousand_cached_folders_take() {
    let place = Place::new();
    let all: Vec<Found> = (0..1000)
        .map(|at| {
            let folder = place.root.path().join(format!("many/e{at}"));
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("manifest.yaml"), format!("id: e{at}")).expect("a file");
            fs::write(folder.join("prompt.md"), format!("You are {at}.")).expect("a file");
            Found { name: format!("e{at}"), folder, origin: Origin::Home, kind: Kind::Folder }
        })
        .collect();
    let mut figures = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let contents = place.contents();
        let opened = start.elapsed();
        all.iter().for_each(|one| drop(contents.of(one, None).expect("content")));
        let read = start.elapsed() - opened;
        contents.save().expect("saved");
        figures.push(format!("open {opened:?}, read {read:?}, save {:?}", start.elapsed() - opened - read));
    }
    println!("first without a cache, then with one: {figures:#?}");
}

#[test]
fn hashes_are_not_written_to_the_place_of_a_home_that_was_moved() {
    let root = tempfile::tempdir().expect("a folder");
    let place = Place::new();
    let contents = Contents::with_clock(root.path().join("home/data/hashes.json"), later);
    contents.of(&place.one, None).expect("content");
    contents.save().expect_err("there is no home");
    assert!(!root.path().join("home").exists());
    fs::create_dir(root.path().join("home")).expect("a folder");
    contents.save().expect("its own folder is made");
}
