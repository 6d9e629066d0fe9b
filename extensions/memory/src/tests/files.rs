//! The file on disk: whose it is, and what becomes of one that cannot be used.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use drupe_extension_api::FaultCode;
use rusqlite::Connection;
use serde_json::json;

use super::support::{MAIN, Scene, memory};

fn file(scene: &Scene) -> PathBuf {
    scene.memory.data_folder().join("memory.sqlite")
}

fn refused(scene: &Scene) -> drupe_extension_api::Fault {
    scene.call(MAIN, None, "memory_save", json!({"text": "x"})).expect_err("it is refused")
}

#[test]
fn the_file_is_made_with_the_first_fact_and_is_nobody_elses() {
    let scene = memory(json!({}));
    assert_eq!(scene.context("tea"), None);
    scene.search("tea");
    scene.says("memory_forget", json!({"id": 1}));
    assert!(!file(&scene).exists());
    scene.save("The user likes tea.");
    let names: Vec<_> = fs::read_dir(scene.memory.data_folder())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["memory.sqlite"]);
    assert_eq!(fs::metadata(file(&scene)).expect("a file").permissions().mode() & 0o777, 0o600);
    assert!(scene.context("tea").is_some(), "it is no longer known to be empty");
}

#[test]
fn a_file_that_is_damaged_or_not_ours_is_named_and_left_alone_until_it_is_moved_away() {
    for (bytes, expected) in [
        (&b""[..], "it is empty"),
        (b"not a database, although it has a hundred bytes and more of text, as a file would that somebody put here by mistake", "is damaged"),
    ] {
        let scene = memory(json!({}));
        fs::write(file(&scene), bytes).expect("a file");
        let fault = refused(&scene);
        assert!(fault.message.contains("memory.sqlite") && fault.message.contains(expected), "{fault}");
        assert!(fault.help.is_some_and(|help| help.contains("move it away")));
        assert_eq!(fs::read(file(&scene)).expect("a file"), bytes);
        fs::remove_file(file(&scene)).expect("a file");
        scene.save("The user likes tea.");
    }
    let scene = memory(json!({}));
    Connection::open(file(&scene)).and_then(|db| db.execute_batch("CREATE TABLE t (x)")).expect("a database");
    let fault = refused(&scene);
    assert!(fault.message.contains("no file of the extension `memory`"), "{fault}");
}

#[test]
fn a_page_that_was_overwritten_is_found_before_anything_is_read_or_written() {
    let scene = memory(json!({}));
    for n in 0..30 {
        scene.save(&format!("The shelf {n} holds {}.", "the book that is bound in leather, ".repeat(20)));
    }
    let db = Connection::open(file(&scene)).expect("a database");
    let page: usize = db
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'words_data'", [], |row| row.get(0))
        .map(|page: u32| page as usize)
        .expect("a page");
    let mut bytes = fs::read(file(&scene)).expect("a file");
    // A page of the index, which whoever lists facts does not read.
    bytes[(page - 1) * 4096..][..512].fill(0xa5);
    let again = memory(json!({}));
    fs::write(file(&again), &bytes).expect("a file");
    let fault = again.asks("namespaces", json!({})).expect_err("it is refused");
    assert!(fault.message.contains("memory.sqlite` is damaged"), "{fault}");
    assert!(refused(&again).message.contains("memory.sqlite` is damaged"));
    assert_eq!(fs::read(file(&again)).expect("a file"), bytes);
}

#[test]
fn a_file_of_a_newer_release_is_named_and_left_alone() {
    let scene = memory(json!({}));
    scene.save("The user likes tea.");
    let newer = memory(json!({}));
    fs::copy(file(&scene), file(&newer)).expect("a file");
    Connection::open(file(&newer))
        .and_then(|db| db.pragma_update(None, "user_version", 7))
        .expect("a version");
    let before = fs::read(file(&newer)).expect("a file");
    let fault = refused(&newer);
    assert!(fault.code == FaultCode::Unsupported && fault.message.contains("its form is 7"), "{fault}");
    assert!(newer.asks("list", json!({})).is_err());
    assert_eq!(fs::read(file(&newer)).expect("a file"), before);
}

#[test]
fn a_file_that_is_put_in_place_of_the_open_one_is_the_one_that_is_used() {
    let (scene, backup) = (memory(json!({})), memory(json!({})));
    scene.save("The user likes tea.");
    backup.save("The user likes coffee.");
    fs::copy(file(&backup), file(&backup).with_extension("copy")).expect("a file");
    fs::rename(file(&backup), file(&scene)).expect("a file");
    assert_eq!(scene.texts(), ["The user likes coffee."]);
    fs::remove_file(file(&scene)).expect("a file");
    assert_eq!(scene.context("coffee"), None);
    assert!(scene.texts().is_empty());
    fs::rename(file(&backup).with_extension("copy"), file(&scene)).expect("a file");
    assert!(scene.context("coffee").is_some(), "also where there was none for a while");
}

#[test]
fn what_cannot_be_written_did_not_happen() {
    let scene = memory(json!({}));
    scene.save("The user likes tea.");
    let other = Connection::open(file(&scene)).expect("a database");
    other.execute_batch("BEGIN EXCLUSIVE").expect("it is locked");
    let fault = refused(&scene);
    assert!(fault.code == FaultCode::Busy && fault.retriable, "{fault}");
    other.execute_batch("ROLLBACK").expect("it is free");
    scene.save("The user likes water.");
    assert_eq!(scene.texts().len(), 2);
    let gone = memory(json!({}));
    fs::remove_dir_all(gone.memory.data_folder()).expect("a folder");
    fs::write(gone.memory.data_folder(), b"in the way").expect("a file");
    assert!(refused(&gone).message.contains("memory.sqlite` cannot be used"));
}
