//! Files of drafts.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn an_agent_is_drafted_written_patched_and_checked() {
    let builder = builder();
    let drafted = call(&builder, "builder_draft", json!({"id": "haiku", "purpose": "writes haikus"}));
    assert!(drafted.expect("a draft").contains("--- prompt.md"));
    assert!(write(&builder, "haiku", "prompt.md", "You write.").is_ok());
    let patch = |find: &str| {
        let params = json!({"id": "haiku", "file": "prompt.md", "find": find, "replace": "rhyme"});
        call(&builder, "builder_patch", params)
    };
    assert!(patch("write").is_ok());
    assert!(refused(patch("write"), FaultCode::Invalid).contains("0 times"));
    assert_eq!(fs::read_to_string(draft(&builder, "haiku").join("prompt.md")).expect("a file"), "You rhyme.");

    let check = || call(&builder, "builder_check", json!({"id": "haiku"}));
    builder.host().answer_control("extensions.check", Ok(sound(true)));
    assert_eq!(check(), Ok("no fault".to_owned()));
    let faulty = json!({"ok": false, "diagnostics": [], "rendered": "no `name`", "agent": true});
    builder.host().answer_control("extensions.check", Ok(faulty));
    assert!(refused(check(), FaultCode::Invalid).contains("no `name`"));
    assert_eq!(builder.host().control_calls()[0].1["path"], json!(draft(&builder, "haiku")));
}

#[test]
fn nothing_is_written_or_read_outside_of_a_draft() {
    let builder = builder();
    for (id, file) in [
        ("../x", "manifest.yaml"),
        ("x", "../manifest.yaml"),
        ("x", "src/../../manifest.yaml"),
        ("x", "/etc/x"),
        ("x", "src/deep/lib.rs"),
        ("x", ".cargo/config.toml"),
    ] {
        refused(write(&builder, id, file, "x"), FaultCode::Invalid);
        let patch = json!({"id": id, "file": file, "find": "a", "replace": "b"});
        refused(call(&builder, "builder_patch", patch), FaultCode::Invalid);
    }
    assert_eq!(fs::read_dir(builder.data_folder().join("staging")).expect("a folder").count(), 0);
}

/// What compiles a draft can write the data folder, and so could leave links for the next write to follow.
#[test]
fn no_link_is_followed() {
    let builder = builder();
    let outside = tempfile::tempdir().expect("a folder");
    fs::write(outside.path().join("lib.rs"), "theirs").expect("a file");
    let reads = |id: &str, file: &str| {
        let patch = json!({"id": id, "file": file, "find": "theirs", "replace": "mine"});
        call(&builder, "builder_patch", patch)
    };

    // A folder that is a link.
    assert!(write(&builder, "a", "manifest.yaml", "x").is_ok());
    symlink(outside.path(), draft(&builder, "a").join("src")).expect("a link");
    assert!(write(&builder, "a", "src/lib.rs", "mine").is_err());
    assert!(reads("a", "src/lib.rs").is_err());

    // A file that is one: it is replaced, not followed. So is one where a file is made ready.
    assert!(write(&builder, "b", "manifest.yaml", "x").is_ok());
    for name in ["lib.rs", ".lib.rs.part"] {
        symlink(outside.path().join("lib.rs"), draft(&builder, "b").join(name)).expect("a link");
    }
    assert!(reads("b", "lib.rs").is_err());
    assert!(write(&builder, "b", "lib.rs", "mine").is_ok());

    // A draft that is another one: each has its own files.
    symlink("b", draft(&builder, "d")).expect("a link");
    assert!(write(&builder, "d", "lib.rs", "mine").is_err());

    // The whole draft.
    symlink(outside.path(), draft(&builder, "c")).expect("a link");
    assert!(write(&builder, "c", "lib.rs", "mine").is_err());
    assert!(call(&builder, "builder_check", json!({"id": "c"})).is_err());
    assert_eq!(fs::read_to_string(outside.path().join("lib.rs")).expect("a file"), "theirs");
}

#[test]
fn a_staging_folder_that_became_a_link_is_not_used() {
    let builder = builder();
    let outside = tempfile::tempdir().expect("a folder");
    fs::create_dir(outside.path().join("words")).expect("a folder");
    fs::write(outside.path().join("words/Cargo.toml"), "theirs").expect("a file");
    fs::remove_dir(builder.data_folder().join("staging")).expect("an empty folder");
    symlink(outside.path(), builder.data_folder().join("staging")).expect("a link");
    builder.host().answer_process("cargo", Ok(FakeHost::ended(0, "cargo 1.95.0", "")));
    for tool in ["builder_draft_native", "builder_compile", "builder_check", "builder_activate"] {
        assert!(call(&builder, tool, json!({"id": "words"})).is_err(), "{tool}");
    }
    assert!(call(&builder, "builder_draft_native", json!({"id": "new", "replace": true})).is_err());
    assert!(builder.host().control_calls().is_empty(), "the kernel is not sent there");
    assert!(write(&builder, "words", "Cargo.toml", "mine").is_err());
    assert_eq!(fs::read_to_string(outside.path().join("words/Cargo.toml")).expect("a file"), "theirs");
}

#[test]
fn a_draft_stays_small() {
    let builder = builder();
    refused(write(&builder, "x", "prompt.md", &"x".repeat(256 * 1024 + 1)), FaultCode::Invalid);
    for number in 0..32 {
        assert!(write(&builder, "x", &format!("src/m{number}.rs"), "").is_ok());
    }
    assert!(refused(write(&builder, "x", "src/one_more.rs", ""), FaultCode::Invalid).contains("32"));
    assert!(write(&builder, "x", "src/m0.rs", "again").is_ok());
}

#[test]
fn the_guide_has_a_page_for_each_kind() {
    let builder = builder();
    let guide = |params| call(&builder, "builder_guide", params).expect("a page");
    assert!(guide(json!({})).contains("prompt.md") && !guide(json!({})).contains("export!"));
    assert!(guide(json!({"topic": "native"})).contains("export!"));
    // What it shows as cases are some.
    let page = guide(json!({}));
    let shown = page.split("```yaml").nth(3).and_then(|rest| rest.split("```").next()).expect("cases");
    assert_eq!(drupe_cases::Cases::read(shown).expect("cases").cases.len(), 3);
}
