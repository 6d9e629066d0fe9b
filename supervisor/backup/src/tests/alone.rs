//! A journal alone that is put back, and backups and restores that would be mixed.

use std::fs::File;

use rusqlite::Connection;

use super::*;
use crate::{BackupError, apart, complete, journal_alone, restore};

/// A home with everything, and the journal as an upgrade kept it, with one turn less.
fn upgraded() -> (Place, PathBuf) {
    let place = Place::new();
    place.full();
    drupe_link::Home::create(place.home()).unwrap();
    let kept = place.home().join("journal.db.v1");
    drupe_journal::copy(&place.home().join("journal.db"), &kept).unwrap();
    sql(&place.home().join("journal.db"), "INSERT INTO meta VALUES ('later', '1')");
    (place, kept)
}

fn sql(path: &Path, statements: &str) {
    Connection::open(path).unwrap().execute_batch(statements).unwrap();
}

fn has_what_came_later(path: &Path) -> bool {
    let db = Connection::open(path).unwrap();
    db.query_row("SELECT count(*) > 0 FROM meta WHERE key = 'later'", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_journal_alone_takes_the_place_of_the_journal_and_of_nothing_else() {
    let (place, kept) = upgraded();
    for beside in ["journal.db-wal", "journal.db-shm"] {
        place.write(beside, "");
    }
    let before = names(&place.home());
    let restored = restore(&place.home(), &kept, None).unwrap();
    assert!(!has_what_came_later(&place.home().join("journal.db")));
    assert_eq!((restored.drupe, restored.journal.unwrap().turns), (None, 0));
    let aside = restored.aside.unwrap();
    assert_eq!(names(&aside), ["journal.db", "journal.db-shm", "journal.db-wal"]);
    assert!(kept.exists(), "it is the way back another time, too");
    let mut after = names(&place.home());
    after.retain(|name| !name.starts_with("before-restore-"));
    let left: Vec<_> =
        before.into_iter().filter(|name| !["journal.db-wal", "journal.db-shm"].contains(&&**name)).collect();
    assert_eq!(after, left);
    for (name, content) in
        [("drupe.yaml", "log: info\n"), (".env", "KEY=secret\n"), ("state/generation", "7")]
    {
        assert_eq!(place.read(name).unwrap(), content);
    }
    wait(place.store().close()).unwrap();
}

#[test]
fn what_is_no_journal_that_was_kept_is_refused_and_the_home_stays_what_it_was() {
    type Break = fn(&Path);
    let cases: [(Break, &str); 4] = [
        (|kept| fs::write(kept.with_extension("v1-wal"), "").unwrap(), "a log lies beside it"),
        (|kept| sql(kept, "PRAGMA user_version = 999"), "restore it with the release that wrote it"),
        (|kept| sql(kept, "PRAGMA application_id = 1"), "not a journal of drupe"),
        (
            |kept| {
                let mut bytes = fs::read(kept).unwrap();
                bytes[8_192..12_000].fill(0xa5);
                fs::write(kept, bytes).unwrap();
            },
            "journal is damaged",
        ),
    ];
    for (break_it, says) in cases {
        let (place, kept) = upgraded();
        break_it(&kept);
        let before = names(&place.home());
        let error = restore(&place.home(), &kept, None).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(journal_alone(&kept).unwrap_err().to_string(), error.to_string());
        assert!(has_what_came_later(&place.home().join("journal.db")));
        assert_eq!(names(&place.home()), before);
    }
    let (place, _) = upgraded();
    let own = place.home().join("journal.db");
    assert!(
        restore(&place.home(), &own, None).unwrap_err().to_string().contains("is the journal of this home")
    );
}

#[test]
fn a_backup_and_a_restore_keep_out_of_each_others_way_and_several_backups_do_not_mind() {
    let place = Place::new();
    place.full();
    drupe_link::Home::create(place.home()).unwrap();
    let read = apart::while_read(&place.home()).unwrap();
    place.made();
    let before = names(&place.home());
    let refused = restore(&place.home(), &place.file(), None).unwrap_err();
    assert!(
        matches!(&refused, BackupError::BackingUp(home) if *home == place.home()) && refused.passes(),
        "{refused}"
    );
    assert!(complete(&place.home()).is_err(), "what was cut off is moved by nobody meanwhile either");
    assert_eq!(names(&place.home()), before);
    drop(read);
    let moved = apart::while_moved(&place.home()).unwrap();
    fs::remove_file(place.file()).unwrap();
    let refused = make(&place.order()).unwrap_err();
    assert!(matches!(refused, BackupError::Restoring(_)) && refused.passes(), "{refused}");
    assert!(!place.file().exists());
    drop(moved);
    place.made();
    restore(&place.home(), &place.file(), None).unwrap();
    // A home whose folder is not there yet has nobody in the way.
    fs::remove_dir_all(place.home().join("run")).unwrap();
    fs::remove_file(place.file()).unwrap();
    place.made();
    assert!(File::open(place.home().join("run")).is_ok());
}
