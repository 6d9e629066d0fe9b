//! What a call says that it would change, and what becomes of the call where that is not so any more.

use super::*;

/// The text of a preview, and its seal.
fn preview(house: &House, tool: &str, params: Value) -> (String, String) {
    let said = block_on(house.files.calling().preview(tool, params)).expect("a preview");
    (said.text, said.seal.expect("a seal"))
}

fn call_as_shown(house: &House, tool: &str, params: Value, seal: &str) -> Result<String, Fault> {
    block_on(house.files.calling().shown(seal).call(tool, params))
}

#[test]
fn a_change_is_shown_as_a_diff_and_nothing_happens_by_it() {
    let house = house(json!({}));
    let edit = json!({"path": "poem.txt", "old": "two", "new": "zwei\ndrei"});
    let (text, seal) = preview(&house, "files_edit", edit.clone());
    assert_eq!(text, "--- poem.txt\n+++ poem.txt\n@@ -1,3 +1,4 @@\n one\n-two\n+zwei\n+drei\n three\n");
    let new = json!({"path": "a/new.txt", "content": "x"});
    let (text, _) = preview(&house, "files_write", new);
    assert_eq!(text, "--- /dev/null\n+++ a/new.txt\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n");
    let (text, _) = preview(&house, "files_write", json!({"path": "poem.txt", "content": ""}));
    assert_eq!(text, "--- poem.txt\n+++ poem.txt\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n");
    let (text, _) =
        preview(&house, "files_write", json!({"path": "poem.txt", "content": "one\ntwo\nthree\n"}));
    assert_eq!(text, "nothing: `poem.txt` is so already");
    assert_eq!(house.content("poem.txt"), "one\ntwo\nthree\n");
    assert!(!house.path("a").exists() && !house.files.data_folder().join("undo").exists());
    assert!(call_as_shown(&house, "files_edit", edit, &seal).is_ok());
}

#[test]
fn a_file_that_goes_or_moves_is_shown_and_another_one_by_then_is_left_alone() {
    let house = house(json!({}));
    let delete = json!({"path": "poem.txt"});
    let (text, gone) = preview(&house, "files_delete", delete.clone());
    assert_eq!(text, "--- poem.txt\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n");
    let to = json!({"path": "poem.txt", "to": "a\nb.txt"});
    let (text, moved) = preview(&house, "files_move", to.clone());
    assert_eq!(text, "`poem.txt` becomes `a\\nb.txt`, 14 bytes");
    fs::write(house.path("poem.txt"), "another").expect("a file");
    for (tool, params, seal) in [("files_delete", delete, gone), ("files_move", to, moved)] {
        let fault = call_as_shown(&house, tool, params, &seal).expect_err("it is another file");
        assert!(fault.message.contains("after a person was shown"), "{fault}");
    }
    assert_eq!(house.content("poem.txt"), "another");
}

#[test]
fn what_cannot_be_read_by_people_is_named() {
    let house = house(json!({"max_file_bytes": 4_000_000}));
    fs::write(house.path("blob"), b"\x00\x01\x02").expect("a file");
    let (text, _) = preview(&house, "files_write", json!({"path": "blob", "content": "text"}));
    assert_eq!(text, "`blob` is a binary file: 3 bytes become 4 bytes");
    fs::write(house.path("long"), "x\n".repeat(1_000_000)).expect("a file");
    let (text, _) = preview(&house, "files_edit", json!({"path": "long", "patch": "@@ -7 +7 @@\n-x\n+y\n"}));
    assert!(text.ends_with("1 lines became 1, from line 7"), "{text}");
    fs::write(house.path("longer"), vec![b'x'; 4_000_001]).expect("a file");
    let (text, _) = preview(&house, "files_write", json!({"path": "longer", "content": "y"}));
    assert_eq!(text, "`longer` has 4000001 bytes, all of which become 1 bytes");
    let (text, _) = preview(&house, "files_write", json!({"path": "a\n+++ b\u{1b}[2K", "content": "y"}));
    assert!(text.starts_with("--- /dev/null\n+++ a\\n+++ b\\u{1b}[2K\n"), "{text}");
    let fault = block_on(
        house.files.calling().preview("files_edit", json!({"path": "none", "old": "a", "new": "b"})),
    );
    assert!(fault.is_err_and(|fault| fault.message.contains("there is no `none`")));
    let fault =
        block_on(house.files.calling().preview("files_write", json!({"path": "../x", "content": "b"})));
    assert!(fault.is_err_and(|fault| fault.code == FaultCode::Denied));
}

#[test]
fn a_call_does_what_was_shown_or_nothing() {
    let house = house(json!({}));
    let edit = json!({"path": "poem.txt", "old": "two", "new": "zwei"});
    let write = json!({"path": "poem.txt", "content": "all\nnew\n"});
    let (_, edit_seal) = preview(&house, "files_edit", edit.clone());
    let (_, write_seal) = preview(&house, "files_write", write.clone());
    // The lines of the edit are as they were, those of the whole file are not.
    fs::write(house.path("poem.txt"), "zero\nmore\nand more\nmuch more\none\ntwo\nthree\n").expect("a file");
    let refused_write = call_as_shown(&house, "files_write", write.clone(), &write_seal);
    refused(refused_write, FaultCode::Denied, "was changed after a person was shown");
    refused(
        call_as_shown(&house, "files_edit", edit.clone(), &edit_seal),
        FaultCode::Denied,
        "was changed after",
    );
    fs::write(house.path("poem.txt"), "one\ntwo\nthree\n").expect("a file");
    assert!(call_as_shown(&house, "files_edit", edit.clone(), &edit_seal).is_ok());
    let other = call_as_shown(&house, "files_write", write, &edit_seal);
    refused(other, FaultCode::Denied, "was changed after");
    assert_eq!(house.content("poem.txt"), "one\nzwei\nthree\n");
}

#[test]
fn what_changes_elsewhere_in_a_file_leaves_what_was_shown_as_it_is() {
    let house = house(json!({}));
    let lines = |changed: &[(usize, &str)]| {
        let mut lines: Vec<String> = (1..=40).map(|n| format!("line {n}")).collect();
        changed.iter().for_each(|(at, text)| lines[at - 1] = (*text).to_owned());
        lines.join("\n") + "\n"
    };
    fs::write(house.path("long.txt"), lines(&[])).expect("a file");
    let first = json!({"path": "long.txt", "old": "line 10\n", "new": "ten\n"});
    let second = json!({"path": "long.txt", "old": "line 30\n", "new": "thirty\nand more\n"});
    let (_, first_seal) = preview(&house, "files_edit", first.clone());
    let (_, second_seal) = preview(&house, "files_edit", second.clone());
    // Two of one step, of which the first runs before the second.
    assert!(call_as_shown(&house, "files_edit", first, &first_seal).is_ok());
    assert!(call_as_shown(&house, "files_edit", second, &second_seal).is_ok());
    assert_eq!(house.content("long.txt"), lines(&[(10, "ten"), (30, "thirty\nand more")]));
    // Next to it is not elsewhere.
    let third = json!({"path": "long.txt", "old": "line 20\n", "new": "twenty\n"});
    let (_, seal) = preview(&house, "files_edit", third.clone());
    fs::write(house.path("long.txt"), lines(&[(21, "other")])).expect("a file");
    refused(call_as_shown(&house, "files_edit", third, &seal), FaultCode::Denied, "was changed after");
}

#[test]
fn a_repeated_write_finds_its_work_done() {
    let house = house(json!({}));
    let write = json!({"path": "poem.txt", "content": "anew\n"});
    let (_, seal) = preview(&house, "files_write", write.clone());
    assert!(call_as_shown(&house, "files_write", write.clone(), &seal).is_ok());
    // Its process ended before the result was recorded.
    assert_eq!(
        call_as_shown(&house, "files_write", write, &seal),
        Ok("wrote `poem.txt`, 5 bytes".to_owned())
    );
}
