//! From a home to a backup and back.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    process::Command,
};

use drupe_link::{Home, HomeLock};
use rusqlite::Connection;

use super::*;
use crate::{BackupError, check, complete, is_cut_off, restore};

fn left_out(made: &MadeBackup) -> Vec<&str> {
    made.left_out.iter().map(|left| left.path.as_str()).collect()
}

#[test]
fn a_backup_has_what_cannot_be_made_again_and_says_what_it_left_out() {
    let place = Place::new();
    place.full();
    let made = place.made();
    assert_eq!(made.journal, Some(drupe_journal::schema::version()));
    assert_eq!(left_out(&made), [".env", "data/mcp/tokens.json", "workspace"]);
    let manifest = check(&place.file(), None).unwrap();
    let files: Vec<_> =
        manifest.entries.keys().filter(|name| name.contains('.')).map(String::as_str).collect();
    assert_eq!(
        files,
        [
            "data/words/kept.txt",
            "drupe.yaml",
            "extensions/words/manifest.yaml",
            "extensions/words/target/debug/libwords.so",
            "journal.db",
            "skills/notes/SKILL.md",
        ]
    );
    assert!(manifest.entries.contains_key("state/generation"));
    assert_eq!(fs::metadata(place.file()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(names(place.folder.path()), ["backup.tar.gz", "home"], "nothing is left beside it");
}

#[test]
fn secrets_and_the_workspace_go_along_where_that_is_said() {
    let place = Place::new();
    place.full();
    let made = make(&Order { secrets: true, workspace: true, ..place.order() }).unwrap();
    assert_eq!(left_out(&made), [""; 0]);
    let manifest = check(&place.file(), None).unwrap();
    for name in [".env", "data/mcp/tokens.json", "workspace/draft.txt"] {
        assert!(manifest.entries.contains_key(name), "{name}");
    }
    assert!(!manifest.entries.keys().any(|name| name.starts_with("run") || name.starts_with("backups")));
}

#[test]
fn an_operator_opens_it_with_tar() {
    let place = Place::new();
    place.full();
    place.made();
    let output = Command::new("tar").arg("-xzOf").arg(place.file()).arg("drupe.yaml").output();
    let output = output.expect("tar is on every system");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "log: info\n");
    let output = Command::new("tar").arg("-tzf").arg(place.file()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("drupe-backup.json\n"));
}

#[test]
fn no_file_is_written_over() {
    let place = Place::new();
    place.full();
    fs::write(place.file(), "mine").unwrap();
    assert!(matches!(make(&place.order()), Err(BackupError::Exists(_))));
    assert_eq!(fs::read_to_string(place.file()).unwrap(), "mine");
}

#[test]
fn what_others_write_to_is_copied_as_it_was_at_one_moment() {
    let place = Place::new();
    place.full();
    let path = place.home().join("data/words/facts.db");
    let writer = Connection::open(&path).unwrap();
    writer.pragma_update(None, "journal_mode", "WAL").unwrap();
    writer.execute_batch("CREATE TABLE facts (text); INSERT INTO facts VALUES ('committed')").unwrap();
    writer.execute_batch("BEGIN; INSERT INTO facts VALUES ('not committed')").unwrap();
    assert!(path.with_file_name("facts.db-wal").metadata().unwrap().len() > 0, "it is in the log alone");
    place.made();
    writer.execute_batch("COMMIT").unwrap();
    drop(writer);

    let other = Place::new();
    restore(&other.home(), &place.file(), None).unwrap();
    assert_eq!(names(&other.home().join("data/words")), ["facts.db", "kept.txt"]);
    let copy = Connection::open(other.home().join("data/words/facts.db")).unwrap();
    let facts: Vec<String> = {
        let mut all = copy.prepare("SELECT text FROM facts").unwrap();
        all.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(facts, ["committed"]);
}

#[test]
fn a_home_is_what_it_was_and_what_stood_there_is_kept_aside() {
    let place = Place::new();
    place.full();
    symlink("/nowhere/else", place.home().join("skills/link")).unwrap();
    fs::set_permissions(place.home().join("data/words/kept.txt"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::create_dir(place.home().join("data/empty")).unwrap();
    place.made();
    for (name, text) in
        [("drupe.yaml", "log: debug\n"), (".env", "KEY=newer\n"), ("workspace/draft.txt", "newer")]
    {
        place.write(name, text);
    }
    place.write("data/mcp/tokens.json", "newer");
    place.write("skills/later/SKILL.md", "later");
    place.write("journal.db-wal", "stale");
    place.write("journal.db-shm", "stale");
    fs::remove_file(place.home().join("data/words/kept.txt")).unwrap();

    let restored = restore(&place.home(), &place.file(), None).unwrap();
    assert_eq!(place.read("drupe.yaml").unwrap(), "log: info\n");
    assert_eq!(place.read("data/words/kept.txt").unwrap(), "kept");
    assert_eq!(fs::metadata(place.home().join("data/words/kept.txt")).unwrap().mode() & 0o777, 0o751);
    assert!(place.home().join("data/empty").is_dir());
    assert_eq!(fs::read_link(place.home().join("skills/link")).unwrap().to_str(), Some("/nowhere/else"));
    assert_eq!(place.read("skills/later/SKILL.md"), None);
    // What it left out is what it is.
    assert_eq!(place.read(".env").unwrap(), "KEY=newer\n");
    assert_eq!(place.read("workspace/draft.txt").unwrap(), "newer");
    assert_eq!(place.read("data/mcp/tokens.json").unwrap(), "newer");
    assert_eq!(place.read("backups/old.tar.gz").unwrap(), "old");
    assert_eq!(restored.kept, [".env", "workspace"]);

    let aside = restored.aside.unwrap();
    assert!(aside.file_name().unwrap().to_str().unwrap().starts_with("before-restore-"));
    assert_eq!(fs::read_to_string(aside.join("drupe.yaml")).unwrap(), "log: debug\n");
    assert_eq!(fs::read_to_string(aside.join("skills/later/SKILL.md")).unwrap(), "later");
    assert_eq!(fs::read_to_string(aside.join("journal.db-wal")).unwrap(), "stale");
    assert!(!place.home().join("journal.db-wal").exists() && !place.home().join("journal.db-shm").exists());
    assert!(!place.home().join(".restore").exists());
    wait(place.store().close()).unwrap();
}

#[test]
fn a_home_that_is_not_there_is_made_for_its_owner_alone() {
    let place = Place::new();
    place.full();
    place.made();
    let home = place.home().with_file_name("other");
    let restored = restore(&home, &place.file(), None).unwrap();
    assert_eq!(restored.aside, None);
    assert_eq!(fs::metadata(&home).unwrap().mode() & 0o777, 0o700);
    assert_eq!(names(&home), ["data", "drupe.yaml", "extensions", "journal.db", "run", "skills", "state"]);
    assert_eq!(names(&home.join("run")), [""; 0]);
}

#[test]
fn a_home_that_a_daemon_serves_is_left_alone() {
    let place = Place::new();
    place.full();
    place.made();
    let home = Home::create(place.home()).unwrap();
    let held = HomeLock::take(&home).unwrap();
    place.write("drupe.yaml", "log: debug\n");
    let refused = restore(&place.home(), &place.file(), None).unwrap_err();
    assert!(refused.to_string().contains("drupe stop"), "{refused}");
    assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
    assert_eq!(place.read("drupe.yaml").unwrap(), "log: debug\n");
    drop(held);
    restore(&place.home(), &place.file(), None).unwrap();
}

#[test]
fn a_backup_is_made_under_a_home_with_odd_names() {
    let place = Place::new();
    let long = "n".repeat(120);
    place.write(&format!("data/words/{long}/{long}/ä ö?#%.txt"), "long");
    place.write("data/words/empty.txt", "");
    place.write("data/words/large.bin", &"x".repeat(3 << 20));
    wait(place.store().close()).unwrap();
    place.made();
    let other = Place::new();
    restore(&other.home(), &place.file(), None).unwrap();
    assert_eq!(other.read(&format!("data/words/{long}/{long}/ä ö?#%.txt")).unwrap(), "long");
    assert_eq!(other.read("data/words/empty.txt").unwrap(), "");
    assert_eq!(other.read("data/words/large.bin").unwrap().len(), 3 << 20);
}

/// Every moment at which a restore may be cut off after it was decided, and each of these once more.
#[test]
fn a_restore_that_is_cut_off_is_gone_on_with_from_any_moment() {
    let place = Place::new();
    place.full();
    place.made();
    for name in ["drupe.yaml", "data/words/kept.txt"] {
        place.write(name, "later");
    }
    place.write("later.txt", "later");
    for moved in 0..20 {
        let home = place.home().with_file_name(format!("copy-{moved}"));
        let copied = Command::new("cp").arg("-a").arg(place.home()).arg(&home).status().unwrap();
        assert!(copied.success());
        let decided = crate::restore::decide(&home, &place.file(), None).unwrap().moves;
        assert!(is_cut_off(&home));
        assert!(matches!(make(&Order { home: home.clone(), ..place.order() }), Err(BackupError::CutOff(_))));
        // The moves of `complete`, as far as they came.
        let aside = home.join(&decided.aside);
        fs::create_dir(&aside).unwrap();
        let out = decided.old.iter().map(|name| (home.join(name), aside.join(name)));
        let new = decided.new.iter().map(|name| (home.join(".restore/new").join(name), home.join(name)));
        for (from, to) in out.chain(new).take(moved) {
            fs::rename(from, to).unwrap();
        }
        // As a client makes it that starts the daemon.
        let _ = fs::create_dir(home.join("state"));
        assert_eq!(complete(&home).unwrap(), Some(aside.clone()), "{moved}");
        assert_eq!(fs::read_to_string(home.join("state/generation")).unwrap(), "7", "{moved}");
        assert_eq!(complete(&home).unwrap(), None, "{moved}");
        assert_eq!(fs::read_to_string(home.join("drupe.yaml")).unwrap(), "log: info\n", "{moved}");
        assert_eq!(fs::read_to_string(home.join("data/words/kept.txt")).unwrap(), "kept", "{moved}");
        assert_eq!(fs::read_to_string(aside.join("later.txt")).unwrap(), "later", "{moved}");
        assert!(!home.join("later.txt").exists() && !home.join(".restore").exists(), "{moved}");
        assert_eq!(fs::read_to_string(home.join(".env")).unwrap(), "KEY=secret\n", "{moved}");
    }
}

#[test]
fn what_was_left_of_one_that_was_not_decided_goes_with_the_next() {
    let place = Place::new();
    place.full();
    place.made();
    place.write(".restore/new/journal.db", "half");
    place.write("drupe.yaml", "log: debug\n");
    assert!(!is_cut_off(&place.home()));
    assert_eq!(complete(&place.home()).unwrap(), None);
    assert_eq!(place.read("drupe.yaml").unwrap(), "log: debug\n");
    restore(&place.home(), &place.file(), None).unwrap();
    assert_eq!(place.read("drupe.yaml").unwrap(), "log: info\n");
}

#[test]
fn what_a_killed_process_left_goes_with_the_next_backup() {
    let place = Place::new();
    place.full();
    let left = place.folder.path().join(".other.tar.gz.drupe-part");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("archive"), "half").unwrap();
    let at_work = place.folder.path().join(".another.tar.gz.drupe-part");
    fs::create_dir(&at_work).unwrap();
    let held = fs::File::open(&at_work).unwrap();
    held.lock().unwrap();
    place.made();
    assert!(!left.exists());
    assert!(at_work.exists(), "another process works with it");
}

#[test]
fn what_a_link_leads_to_is_said_not_to_be_in_a_backup_and_a_linked_secret_is_one() {
    let place = Place::new();
    place.full();
    let elsewhere = place.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for name in [".env", "data/words"] {
        fs::rename(place.home().join(name), elsewhere.join(name.replace('/', "-"))).unwrap();
        symlink(elsewhere.join(name.replace('/', "-")), place.home().join(name)).unwrap();
    }
    symlink("drupe.yaml", place.home().join("inside")).unwrap();
    let made = place.made();
    let left = |name: &str| made.left_out.iter().find(|left| left.path == name);
    assert!(left(".env").is_some_and(|left| left.secret), "{made:?}");
    assert!(left("data/words").is_some_and(|left| left.why.contains("elsewhere/data-words")), "{made:?}");
    assert!(left("inside").is_none(), "{made:?}");
    restore(&place.home(), &place.file(), None).unwrap();
    assert!(place.home().join(".env").is_symlink() && place.read(".env").is_some(), "it stays what it was");
}

#[test]
fn what_a_restore_could_not_finish_is_refused_before_anything_is_moved() {
    let place = Place::new();
    place.full();
    let inside = place.home().join("data/words/backup.tar.gz");
    make(&Order { file: inside.clone(), ..place.order() }).unwrap();
    let before = names(&place.home());
    let refused = restore(&place.home(), &inside, None).unwrap_err().to_string();
    assert!(refused.contains("`data`") && refused.contains("move"), "{refused}");
    assert_eq!((names(&place.home()), is_cut_off(&place.home())), (before, false));
    assert_eq!(place.read("drupe.yaml").as_deref(), Some("log: info\n"));
}
