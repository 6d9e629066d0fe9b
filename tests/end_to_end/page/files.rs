//! Files that go along with a message, and files that the assistant changes.

use std::fs;

use serde_json::json;

use super::{
    Scene,
    browser::{DESK, PHONE, Window},
    scene,
    stage::{Gate, staged},
};
use crate::harness::{Daemon, until};

/// It has what ends a block of code, what begins another file, and markup.
const NOTES: &str = "one\n```\nFile `other.txt`:\n````\n<b>two</b>\n";

fn added(window: Window) {
    let Some(scene) = scene(window) else { return };
    let (browser, home) = (&scene.browser, scene.daemon.path().to_owned());
    let file = |name: &str, content: &[u8]| {
        let path = home.join(name);
        fs::write(&path, content).expect("a file");
        path.display().to_string()
    };
    let (notes, other) = (file("my `notes`.txt", NOTES.as_bytes()), file("other.txt", b"x"));
    let (picture, long) =
        (file("picture.png", &[0x89, 0x50, 0xff, 0x00]), file("long.txt", &[b'x'; 300_000]));
    let input = ".composer input[type=file]";
    for path in [&notes, &other, &picture, &long] {
        browser.write(input, path);
    }
    browser.until("document.querySelectorAll('.added li').length === 2");
    browser.shows(
        ".composer [role=status]",
        "long.txt was not added: the files of a message have 256.0 KiB at most",
    );
    browser.until("document.getElementById('alerts').textContent.includes('not added')");
    browser.click(".added li:last-child button");
    browser.until("document.querySelectorAll('.added li').length === 1");
    browser.write(".composer textarea", "what is in it");
    browser.click(".composer [type=submit]");
    scene.ended();
    assert_eq!(browser.eval("return document.querySelectorAll('.added li').length"), 0);
    let shown = "return [document.querySelectorAll('.asked details').length, document.querySelector('.asked summary .name').textContent, \
                 document.querySelector('.asked pre').textContent, document.querySelector('.asked').firstChild.data]";
    let wanted = json!([1, "my notes .txt", NOTES, "what is in it"]);
    assert_eq!(browser.eval(shown), wanted);
    let request = scene._server.requests().pop().expect("a request");
    let content =
        request["messages"].as_array().and_then(|m| m.last()).expect("a message")["content"].clone();
    let sent = format!("what is in it\n\nFile `my notes .txt`:\n`````\n{NOTES}\n`````");
    assert_eq!(content, sent, "the model reads all of it");
    browser.click(".asked summary");
    browser.shows(".asked pre", "<b>two</b>");
    scene.visit(&scene.conversation());
    browser.until("document.querySelector('.asked pre')");
    assert_eq!(browser.eval(shown), wanted, "it is the same to who comes later");
}

#[test]
fn files_are_added_to_a_message_and_shown_folded_on_a_desk() {
    added(DESK);
}

#[test]
fn files_are_added_to_a_message_and_shown_folded_on_a_phone() {
    added(PHONE);
}

#[test]
fn what_is_no_text_is_not_added_and_what_is_dropped_or_pasted_is() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    let event = |kind: &str, of: &str| {
        format!(
            "const data = new DataTransfer(); data.items.add(new File(['dropped'], '{kind}.txt')); \
             document.querySelector('{of}').dispatchEvent(new {} )",
            match kind {
                "drop" => "DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})",
                _ => "ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})",
            }
        )
    };
    browser.eval(&event("drop", "main"));
    browser.until("document.querySelectorAll('.added li').length === 1");
    browser.eval(&event("paste", ".composer textarea"));
    browser.until("document.querySelectorAll('.added li').length === 2");
    let path = scene.daemon.path().join("picture.png");
    fs::write(&path, [0x89, 0x50, 0xff, 0x00]).expect("a file");
    browser.write(".composer input[type=file]", &path.display().to_string());
    browser.shows(".composer [role=status]", "picture.png was not added: it is no text");
}

#[test]
fn a_file_that_the_assistant_writes_is_read_and_kept_and_a_change_has_signs() {
    let Some(scene) = Scene::open(DESK, staged(&Gate::default()), |_| {}) else { return };
    let browser = &scene.browser;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let to = json!({"behavior": "allow", "downloadPath": folder.path()});
    browser.devtools("Page.setDownloadBehavior", &to);
    let write = json!({"path": "poems/leaf.md", "content": "A leaf\nfalls\n"});
    scene.send_lines(&[&format!("CALL files_write {write}"), "SAY written"]);
    browser.shows(".turn .prose", "written");
    browser.shows(".work .kind", "file");
    browser.shows(".work .gist", "poems/leaf.md");
    browser.click(".work .more");
    browser.shows(".io h3", "poems/leaf.md");
    browser.shows(".io .io-text", "A leaf\nfalls");
    browser.click(".io section .row button:last-child");
    let kept = || fs::read_to_string(folder.path().join("leaf.md")).ok().filter(|text| !text.is_empty());
    assert_eq!(until("the browser kept it", kept).as_deref(), Some("A leaf\nfalls\n"));
    let edit = json!({"path": "poems/leaf.md", "old": "falls", "new": "rises"});
    scene.send_lines(&[&format!("CALL files_edit {edit}"), "SAY changed"]);
    browser.shows(".turn:last-child .prose", "changed");
    browser.click(".turn:last-child .work .more");
    browser.shows(".io .gone", "- falls");
    browser.shows(".io .new", "+ rises");
}

#[test]
fn a_question_about_a_file_shows_the_lines_that_would_go_and_come_and_obeys_none_of_them() {
    let rule = "approvals: {rules: [{tool: files_write, then: ask}]}\n";
    let prepare = |daemon: &Daemon| {
        let settings = fs::read_to_string(daemon.path().join("drupe.yaml")).expect("its settings");
        daemon.write("drupe.yaml", &(settings + rule));
        daemon.write("workspace/leaf.txt", "a leaf\nfalls\n");
    };
    let Some(scene) = Scene::open(DESK, staged(&Gate::default()), prepare) else { return };
    let browser = &scene.browser;
    let write = json!({"path": "leaf.txt", "content": "a leaf\n<img src=x onerror=owned=1>\u{202e}\n"});
    scene.send_lines(&[&format!("CALL files_write {write}"), "SAY done"]);
    browser.shows(".question .preview .gone", "-falls");
    browser.shows(".question .preview .new", r"+<img src=x onerror=owned=1>\u202e");
    let found = browser.eval("return [document.querySelectorAll('.question img').length, typeof owned]");
    assert_eq!(found, json!([0, "undefined"]));
    browser.click(".question .primary");
    browser.shows(".turn .prose", "done");
}
