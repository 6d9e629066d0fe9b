//! What was changed is taken back, over restarts and ends in between.

use drupe_extension_api::wire::LookupResult;

use super::*;

impl House {
    fn write(&self, path: &str, content: &str) {
        self.call("files_write", json!({"path": path, "content": content})).expect("it is written");
    }

    fn undo(&self, change: Option<&str>) -> Result<String, Fault> {
        self.call("files_undo", json!({ "change": change }))
    }

    /// The names of the changes, the latest first.
    fn changes(&self) -> Vec<String> {
        let list = self.call("files_changes", json!({})).expect("a list");
        list.lines().filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect()
    }

    /// The files that hold what is kept, by the last part of their names.
    fn kept(&self) -> Vec<(std::path::PathBuf, String)> {
        let Ok(entries) = fs::read_dir(self.files.data_folder().join("undo")) else { return Vec::new() };
        let mut all: Vec<_> = entries
            .map(|entry| entry.expect("an entry").path())
            .map(|path| {
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                let how = name.rsplit('.').next().unwrap_or_default();
                (path, how.split('-').next().unwrap_or_default().to_owned())
            })
            .collect();
        all.sort();
        all
    }

    /// The same folders under a new process, of which one file of the store has another ending.
    fn after_end(self, at: usize, how: &str) -> House {
        let (path, _) = self.kept().remove(at);
        let (stem, _) = path.to_str().expect("a path").rsplit_once('.').expect("an ending");
        let name = format!("{stem}.{how}");
        fs::rename(&path, name).expect("it is renamed");
        self.again(json!({}))
    }

    fn again(self, config: Value) -> House {
        let data = self.root.path().join("data");
        if !data.exists() {
            fs::create_dir(&data).expect("a folder");
        }
        let setup = Harness::setup().id("files").config(config).data_folder(&data);
        let setup = setup.workspace(self.root.path().join("workspace"));
        House { files: block_on(setup.start()).expect("it starts"), root: self.root }
    }
}

/// A house whose data folder outlives its process.
fn lasting(config: Value) -> House {
    house(json!({})).again(config)
}

#[test]
fn changes_are_taken_back_one_after_the_other_and_none_twice() {
    let house = lasting(json!({}));
    house.write("poem.txt", "first\n");
    house.write("poem.txt", "second\n");
    house.write("a/b/new.txt", "new\n");
    house
        .call("files_edit", json!({"path": "src/main.rs", "old": "main", "new": "other"}))
        .expect("it is edited");
    assert!(house.undo(None).is_ok_and(|said| said.contains("`src/main.rs` holds what it held before")));
    assert_eq!(house.content("src/main.rs"), "fn main() {}\n");
    let house = house.again(json!({}));
    assert!(house.undo(None).is_ok_and(|said| said.contains("`a/b/new.txt` is gone")));
    assert!(!house.path("a").exists(), "with the folders that were made for it");
    house.undo(None).expect("it is taken back");
    assert_eq!(house.content("poem.txt"), "first\n");
    house.undo(None).expect("it is taken back");
    assert_eq!(house.content("poem.txt"), "one\ntwo\nthree\n");
    refused(house.undo(None), FaultCode::NotFound, "no change of this conversation is left");
    let first = house.changes().remove(0);
    refused(house.undo(Some(&first)), FaultCode::Invalid, "was taken back already");
    refused(house.undo(Some("c-1")), FaultCode::NotFound, "no change `c-1`");
}

#[test]
fn a_conversation_takes_back_its_own_changes_alone() {
    let house = lasting(json!({}));
    house.write("poem.txt", "mine\n");
    let id = house.changes().remove(0);
    let other = || house.files.calling().session("session-2");
    let list = block_on(other().call("files_changes", json!({}))).expect("a list");
    assert_eq!(list, "no change of this conversation is kept");
    for params in [json!({}), json!({ "change": id })] {
        refused(block_on(other().call("files_undo", params)), FaultCode::NotFound, "no change");
    }
}

#[test]
fn what_somebody_else_wrote_is_not_touched() {
    let house = lasting(json!({}));
    house.write("poem.txt", "mine\n");
    house.write("new.txt", "mine\n");
    fs::write(house.path("new.txt"), "yours\n").expect("a file");
    refused(house.undo(None), FaultCode::Denied, "`new.txt` does not hold any more what change");
    assert_eq!(house.content("new.txt"), "yours\n");
    fs::remove_file(house.path("new.txt")).expect("a file");
    refused(house.undo(None), FaultCode::Denied, "does not hold any more");
    let list = house.call("files_changes", json!({})).expect("a list");
    assert!(list.lines().next().is_some_and(|line| line.ends_with("(the file was changed since)")), "{list}");
    // Another one is named.
    let poem = house.changes().remove(1);
    house.undo(Some(&poem)).expect("it is taken back");
    assert_eq!(house.content("poem.txt"), "one\ntwo\nthree\n");
}

#[test]
fn it_is_shown_before_it_is_done_and_does_what_was_shown() {
    let house = lasting(json!({}));
    house.write("poem.txt", "one\n2\nthree\n");
    let said = block_on(house.files.calling().preview("files_undo", json!({}))).expect("a preview");
    assert_eq!(said.text, "--- poem.txt\n+++ poem.txt\n@@ -1,3 +1,3 @@\n one\n-2\n+two\n three\n");
    let seal = said.seal.expect("a seal");
    house.write("poem.txt", "one\n3\nthree\n");
    // The latest is another one by now.
    let undo = block_on(house.files.calling().shown(&seal).call("files_undo", json!({})));
    refused(undo, FaultCode::Denied, "was changed after a person was shown");
    house.undo(None).expect("it is taken back");
    let undo = block_on(house.files.calling().shown(&seal).call("files_undo", json!({})));
    assert!(undo.is_ok(), "{undo:?}");
}

#[test]
fn marks_come_back_with_what_they_are_of() {
    let house = lasting(json!({}));
    let untrusted = |path: &str| {
        let read = house.files.calling().result("files_read", json!({ "path": path }));
        block_on(read).expect("it is read").untrusted
    };
    let page = json!({"path": "page.txt", "content": "what a page says\n"});
    block_on(house.files.calling().tainted().call("files_write", page)).expect("it is written");
    house.write("page.txt", "my own\n");
    assert!(!untrusted("page.txt"));
    house.undo(None).expect("it is taken back");
    assert!(untrusted("page.txt"));
    let edit = json!({"path": "poem.txt", "old": "two", "new": "a page"});
    block_on(house.files.calling().tainted().call("files_edit", edit)).expect("it is edited");
    assert!(untrusted("poem.txt"));
    house.undo(None).expect("it is taken back");
    assert!(!untrusted("poem.txt"));
}

#[test]
fn a_process_that_ended_between_two_steps_leaves_each_change_made_or_not() {
    // Kept, and the file was not written yet: the change never was.
    let house = lasting(json!({}));
    house.write("poem.txt", "anew\n");
    fs::write(house.path("poem.txt"), "one\ntwo\nthree\n").expect("a file");
    let house = house.after_end(0, "begun");
    assert_eq!(block_on(house.files.lookup("files_edit", "effect-1")), Ok(LookupResult::NotDone));
    assert_eq!((house.changes(), house.kept()), (vec![], vec![]));
    // Written, and not noted.
    house.write("poem.txt", "anew\n");
    let house = house.after_end(0, "begun");
    let done = LookupResult::Done { content: "wrote `poem.txt`, 5 bytes".into() };
    assert_eq!(block_on(house.files.lookup("files_edit", "effect-1")), Ok(done));
    // About to be taken back, and not written.
    let house = house.after_end(0, "undoing-x");
    assert!(house.undo(None).is_ok());
    assert_eq!(house.content("poem.txt"), "one\ntwo\nthree\n");
    // Taken back, and not noted. The same content is written again by somebody: it is theirs.
    let by = house
        .kept()
        .remove(0)
        .0
        .extension()
        .expect("an ending")
        .to_string_lossy()
        .replace("undone", "undoing");
    let house = house.after_end(0, &by);
    assert_eq!(house.changes().len(), 1);
    assert_eq!(house.kept()[0].1, "undone");
    fs::write(house.path("poem.txt"), "anew\n").expect("a file");
    refused(house.undo(None), FaultCode::NotFound, "no change of this conversation is left");
    assert_eq!(house.content("poem.txt"), "anew\n");
    let took = block_on(house.files.lookup("files_undo", "effect-1")).expect("an answer");
    assert!(matches!(took, LookupResult::Done { .. }), "{took:?}");
}

#[test]
fn what_was_cut_off_while_it_was_kept_is_let_go_and_what_is_damaged_is_not_given_back() {
    let house = lasting(json!({}));
    house.write("poem.txt", "anew\n");
    let (path, _) = house.kept().remove(0);
    let begun = path.with_file_name("1.0123456789abcdef.begun");
    fs::write(&begun, "{\"session\": \"s").expect("a file");
    fs::write(path.with_file_name("somebody's"), "x").expect("a file");
    let house = house.again(json!({}));
    assert_eq!(house.changes().len(), 1);
    assert!(!begun.exists());
    let text = fs::read_to_string(&path).expect("a file").replace("two", "TWO");
    fs::write(&path, text).expect("a file");
    refused(house.undo(None), FaultCode::Other, "is damaged");
    assert_eq!(house.content("poem.txt"), "anew\n");
}

#[test]
fn what_is_kept_is_for_its_owner_alone_and_bounded() {
    let house = lasting(json!({"undo_bytes": 4_000, "max_file_bytes": 3_000}));
    for n in 0..5 {
        house.write("poem.txt", &format!("{n}").repeat(1_000));
    }
    let kept = house.kept();
    let bytes: u64 = kept.iter().map(|(path, _)| fs::metadata(path).expect("a file").len()).sum();
    assert!(bytes <= 4_000 && kept.len() == 2, "{bytes} bytes in {} files", kept.len());
    for (path, _) in kept {
        assert_eq!(fs::metadata(path).expect("a file").permissions().mode() & 0o777, 0o600);
    }
    let folder = fs::metadata(house.files.data_folder().join("undo")).expect("a folder");
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    // One that is too long to be kept is changed all the same, and that is told.
    fs::write(house.path("long"), "x".repeat(3_001)).expect("a file");
    house.write("long", "y");
    refused(house.undo(None), FaultCode::Other, "too long to be kept");
    let list = house.call("files_changes", json!({})).expect("a list");
    assert!(list.contains("too long to be kept"), "{list}");
    // Old ones go with the next change.
    let (path, _) = house.kept().remove(0);
    let old = path.with_file_name("1000.0123456789abcdef.done");
    fs::copy(&path, &old).expect("a copy");
    house.write("poem.txt", "x");
    assert!(!old.exists());
    let house = house.again(json!({"undo_bytes": 0}));
    house.write("poem.txt", "nothing is kept");
    refused(house.undo(None), FaultCode::NotConfigured, "`undo_bytes` is 0");
}

#[test]
fn what_is_deleted_or_moved_comes_back_and_nothing_is_replaced_by_it() {
    let house = lasting(json!({}));
    let deletes = |house: &House, path: &str| house.call("files_delete", json!({"path": path}));
    let moves =
        |house: &House, path: &str, to: &str| house.call("files_move", json!({"path": path, "to": to}));
    fs::write(house.path("blob"), b"\x00\x01\x02").expect("a file");
    assert_eq!(deletes(&house, "blob"), Ok("deleted `blob`, 3 bytes".to_owned()));
    refused(deletes(&house, "blob"), FaultCode::NotFound, "there is no `blob`");
    assert_eq!(
        moves(&house, "poem.txt", "old/poems/one.txt"),
        Ok("moved `poem.txt` to `old/poems/one.txt`".to_owned())
    );
    assert!(!house.path("poem.txt").exists());
    assert_eq!(house.content("old/poems/one.txt"), "one\ntwo\nthree\n");
    // Over a process that ended in between, whichever step was the last that it noted.
    let house = house.after_end(1, "begun");
    assert!(house.undo(None).is_ok_and(|said| said.contains("is `poem.txt` again")));
    assert_eq!(house.content("poem.txt"), "one\ntwo\nthree\n");
    assert!(!house.path("old").exists(), "with the folders that were made for it");
    let house = house.after_end(0, "begun");
    assert!(house.undo(None).is_ok_and(|said| said.contains("`blob` holds what it held before")));
    assert_eq!(fs::read(house.path("blob")).expect("a file"), b"\x00\x01\x02");
    refused(house.undo(None), FaultCode::NotFound, "no change of this conversation is left");

    // What somebody put there meanwhile stays.
    deletes(&house, "blob").expect("it goes");
    fs::write(house.path("blob"), "another").expect("a file");
    refused(house.undo(None), FaultCode::Denied, "does not hold any more what change");
    moves(&house, "poem.txt", "two.txt").expect("it moves");
    fs::write(house.path("poem.txt"), "another").expect("a file");
    refused(house.undo(None), FaultCode::Denied, "there is a `poem.txt` again");
    refused(moves(&house, "two.txt", "poem.txt"), FaultCode::Invalid, "there is a `poem.txt` already");
    refused(moves(&house, "poem.txt", "poem.txt"), FaultCode::Invalid, "there is a `poem.txt` already");
    assert_eq!((house.content("poem.txt"), house.content("blob")), ("another".into(), "another".into()));

    // Neither leads out, nor into what git keeps, nor takes what is no file.
    fs::create_dir_all(house.path(".git/hooks")).expect("a folder");
    fs::write(house.path(".git/config"), "x").expect("a file");
    for (path, to) in [
        (".git/config", "config"),
        ("two.txt", ".git/hooks/pre-commit"),
        ("two.txt", "../two.txt"),
        ("src", "source"),
    ] {
        assert!(moves(&house, path, to).is_err(), "{path} to {to}");
    }
    for path in [".git/config", "../data/x", "src", "/etc/hostname"] {
        assert!(deletes(&house, path).is_err(), "{path}");
    }
    assert!(house.path("two.txt").exists() && house.path(".git/config").exists());
}

#[test]
fn what_could_not_be_brought_back_is_not_deleted_and_nothing_is_unasked() {
    let house = lasting(json!({"max_file_bytes": 4}));
    let tools = house.files.describe().expect("a description").tools;
    let of = |name: &str| {
        tools.iter().find(|tool| tool.name.as_str() == name).expect("a tool").annotations.destructive
    };
    assert!(of("files_delete") && !of("files_move"));
    let refusal = house.call("files_delete", json!({"path": "poem.txt"}));
    refused(refusal, FaultCode::Invalid, "longer than the limit");
    assert!(house.path("poem.txt").exists());
}
