use std::{
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, symlink},
        net::UnixListener,
    },
    time::{Duration, SystemTime},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

fn root() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn folder(root: &Path, name: impl AsRef<OsStr>) -> PathBuf {
    let folder = root.join(name.as_ref());
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("manifest.yaml"), "id: x").expect("a manifest");
    folder
}

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).expect("a named pipe");
}

fn home(root: &Path) -> (Vec<Found>, Vec<PassedOver>) {
    discover(&[(Origin::Home, root.to_owned())])
}

/// What was found in a home, and the one reason why something was not.
fn passed(root: &Path) -> String {
    let (found, passed) = home(root);
    assert_eq!(found, vec![], "nothing is found");
    let [passed] = passed.as_slice() else { panic!("{passed:?}") };
    assert_eq!(passed.path.parent(), Some(root));
    passed.reason.clone()
}

#[test]
fn folders_and_single_files_are_found_in_the_order_of_their_names() {
    let root = root();
    folder(root.path(), "b");
    folder(root.path(), "0-a_9");
    fs::write(root.path().join("a.md"), "x").expect("a file");
    fs::write(root.path().join("notes.txt"), "x").expect("a file");
    folder(root.path(), ".hidden");
    fs::write(root.path().join(".hidden.md"), "x").expect("a file");
    let (found, passed) = home(root.path());
    assert_eq!(passed, vec![]);
    let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.kind)).collect();
    assert_eq!(found, [("0-a_9", Kind::Folder), ("a", Kind::File), ("b", Kind::Folder)]);
    assert_eq!(home(root.path()).0[1].folder, root.path().join("a.md"));
}

#[test]
fn a_name_that_is_no_id_is_passed_over_and_shown_escaped() {
    let long = "a".repeat(49);
    let cases: [(&[u8], &str); 8] = [
        (b"KV", "`KV`"),
        ("k\u{443}".as_bytes(), "`k\\u{443}`"),
        ("e\u{301}".as_bytes(), "`e\\u{301}`"),
        (b"\x1b[31mred", "\\u{1b}[31mred"),
        (b"a\nb", "`a\\nb`"),
        (b"\xffx", "`\\xffx`"),
        (b"-a", "`-a`"),
        (long.as_bytes(), "48"),
    ];
    for (name, shown) in cases {
        let root = root();
        folder(root.path(), OsStr::from_bytes(name));
        let reason = passed(root.path());
        assert!(reason.contains(shown) && !reason.contains('\x1b'), "{reason}");
    }
    assert!(is_id(&"a".repeat(48)) && !is_id(""));
}

#[test]
fn a_file_with_a_name_in_capitals_is_no_agent() {
    let root = root();
    fs::write(root.path().join("README.md"), "x").expect("a file");
    assert!(passed(root.path()).contains("`README.md` gives no id"));
}

#[test]
fn ids_that_differ_by_case_alone_do_not_meet() {
    let root = root();
    for name in ["kv", "KV", "Kv"] {
        folder(root.path(), name);
    }
    let (found, passed) = home(root.path());
    assert_eq!((found.len(), passed.len()), (1, 2));
    assert_eq!(found[0].name, "kv");
}

#[test]
fn a_manifest_that_is_no_file_is_passed_over_without_being_opened() {
    type Make = fn(&Path);
    let cases: [(Make, &str); 7] = [
        (pipe, "a named pipe"),
        (|path| fs::create_dir(path).expect("a folder"), "a folder"),
        (|path| drop(UnixListener::bind(path).expect("a socket")), "a socket"),
        (|path| symlink("nowhere", path).expect("a link"), "leads nowhere"),
        (|path| symlink("/etc/hostname", path).expect("a link"), "leaves the folder"),
        (|path| symlink("manifest.yaml", path).expect("a link"), "leads nowhere"),
        (
            |path| {
                pipe(&path.with_file_name("pipe"));
                symlink("pipe", path).expect("a link");
            },
            "a named pipe",
        ),
    ];
    for (make, named) in cases {
        let root = root();
        let folder = folder(root.path(), "a");
        fs::remove_file(folder.join("manifest.yaml")).expect("it was there");
        make(&folder.join("manifest.yaml"));
        let reason = passed(root.path());
        assert!(reason.contains("`manifest.yaml`") && reason.contains(named), "{reason}");
    }
}

#[test]
fn what_is_neither_folder_nor_file_is_passed_over() {
    let root = root();
    pipe(&root.path().join("a.md"));
    assert!(passed(root.path()).contains("a named pipe"));
}

#[test]
fn a_link_is_followed_only_within_its_root() {
    let (root, outside) = (root(), root());
    folder(root.path(), "real");
    symlink("real", root.path().join("inside")).expect("a link");
    symlink(folder(outside.path(), "far"), root.path().join("far")).expect("a link");
    symlink("..", root.path().join("up")).expect("a link");
    symlink(".", root.path().join("itself")).expect("a link");
    symlink("nowhere.md", root.path().join("dangling.md")).expect("a link");
    let (found, passed) = home(root.path());
    let found: Vec<_> = found.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(found, ["inside", "real"]);
    assert_eq!(passed.len(), 4, "{passed:?}");
    assert!(passed.iter().all(|p| p.reason.contains("symbolic link")), "{passed:?}");
}

#[test]
fn a_root_that_cannot_be_read_is_said_and_one_that_is_not_there_only_where_it_was_listed() {
    let root = root();
    let file = root.path().join("file");
    fs::write(&file, "x").expect("a file");
    let missing = root.path().join("missing");
    let (_, passed) = discover(&[
        (Origin::Home, file.clone()),
        (Origin::Home, missing.clone()),
        (Origin::Listed, missing.clone()),
    ]);
    let paths: Vec<_> = passed.iter().map(|p| &p.path).collect();
    assert_eq!(paths, [&file, &missing]);
    assert!(passed[0].reason.contains("cannot be read"));
}

#[test]
fn a_folder_without_a_manifest_says_so() {
    let root = root();
    fs::create_dir(root.path().join("a")).expect("a folder");
    assert_eq!(passed(root.path()), "a folder without `manifest.yaml`");
}

#[test]
fn entries_beyond_the_bound_are_not_looked_at_and_that_is_said() {
    let root = root();
    for at in 0..=MOST {
        fs::write(root.path().join(format!("{at:05}.md")), "").expect("a file");
    }
    let (found, passed) = home(root.path());
    assert_eq!((found.len(), passed.len()), (MOST, 1));
    assert!(passed[0].reason.contains("4096"), "{passed:?}");
}

fn found(name: &str, origin: Origin) -> Found {
    let folder = PathBuf::from(format!("/{origin:?}/{name}"));
    Found { name: name.into(), folder, origin, kind: Kind::Folder }
}

#[test]
fn the_same_id_twice_is_an_error_that_names_both_folders() {
    let settled = settle(vec![found("kv", Origin::Shipped), found("kv", Origin::Home)], |_| false);
    assert_eq!(settled.len(), 2);
    for (_, clash) in settled {
        let clash = clash.expect("both clash");
        assert!(
            clash.contains("/Shipped/kv") && clash.contains("/Home/kv") && clash.contains("overrides"),
            "{clash}"
        );
    }
}

#[test]
fn an_override_in_the_home_replaces_the_shipped_one() {
    let settled = settle(vec![found("kv", Origin::Shipped), found("kv", Origin::Home)], |_| true);
    assert_eq!(settled, vec![(found("kv", Origin::Home), None)]);
}

#[test]
fn an_override_does_not_replace_another_of_ones_own() {
    let file = Found { kind: Kind::File, folder: "/Home/kv.md".into(), ..found("kv", Origin::Home) };
    let settled = settle(vec![found("kv", Origin::Home), file], |_| true);
    assert!(settled.len() == 2 && settled.iter().all(|(_, clash)| clash.is_some()), "{settled:?}");
}

/// Writes a file and gives it an age.
fn built(path: &Path, seconds: u64) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let file = fs::File::create(path).expect("a file");
    file.write_all_at(b"x", 0).expect("written");
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).expect("a time");
}

/// A program in `bin`, a home in `home`.
fn layout(root: &Path) -> Layout {
    Layout::new(&root.join("bin/drupe"), &root.join("home"), &[])
}

fn in_home(root: &Path) -> Found {
    Found { folder: folder(root, "kv"), ..found("kv", Origin::Home) }
}

#[test]
fn a_library_is_taken_from_the_folder_and_else_from_where_cargo_built_last() {
    let root = root();
    let root = root.path().canonicalize().expect("a path");
    let one = in_home(&root);
    let file = |place: &str| one.folder.join(place).join("libkv.so");
    let library = || layout(&root).library(&one, "libkv");
    assert!(library().expect_err("nothing is built").to_string().contains("build it"));
    built(&root.join("bin/libkv.so"), 9);
    assert!(library().is_err(), "what lies beside the program is not the home's");
    built(&file("target/release"), 1);
    built(&file("target/debug"), 2);
    assert_eq!(library(), Ok(file("target/debug")));
    built(&file("target/release"), 3);
    assert_eq!(library(), Ok(file("target/release")));
    built(&file(""), 0);
    assert_eq!(library(), Ok(one.folder.join("libkv.so")));
}

#[test]
fn a_shipped_library_is_taken_from_beside_the_program_and_not_from_its_folder_s_target() {
    let root = root();
    let root = root.path().canonicalize().expect("a path");
    let one = Found { origin: Origin::Shipped, ..in_home(&root) };
    built(&one.folder.join("target/release/libkv.so"), 9);
    built(&root.join("bin/libkv.so"), 1);
    built(&root.join("bin/deps/libkv.so"), 2);
    assert_eq!(layout(&root).library(&one, "libkv"), Ok(root.join("bin/deps/libkv.so")));
}

#[test]
fn a_library_that_leaves_the_folder_is_refused() {
    let root = root();
    let one = in_home(root.path());
    built(&root.path().join("libelse.so"), 1);
    symlink("../libelse.so", one.folder.join("libkv.so")).expect("a link");
    for entrypoint in ["libkv", "../libelse"] {
        let refused = layout(root.path()).library(&one, entrypoint).expect_err("it leaves");
        assert!(refused.to_string().contains("leaves"), "{refused}");
    }
    let single = Found { kind: Kind::File, ..one };
    assert!(layout(root.path()).library(&single, "libkv").is_err());
}
