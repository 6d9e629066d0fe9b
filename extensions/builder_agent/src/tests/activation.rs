//! Handing over.

use std::sync::Arc;

use super::*;

/// Activates what is no agent.
fn activate(builder: &Harness<Builder>) -> Result<String, Fault> {
    builder.host().answer_control("extensions.check", Ok(sound(false)));
    call(builder, "builder_activate", json!({"id": "words"}))
}

/// Activates an agent whose only case passes.
fn activate_agent(builder: &Harness<Builder>) -> Result<String, Fault> {
    builder.host().answer_control("extensions.try", Ok(tried("1, 2, 3", &[], true)));
    call(builder, "builder_eval", json!({"id": "words"}))?;
    builder.host().answer_control("extensions.check", Ok(sound(true)));
    call(builder, "builder_activate", json!({"id": "words"}))
}

fn compiled() -> Harness<Builder> {
    let builder = native();
    builds(&builder);
    call(&builder, "builder_compile", json!({"id": "words"})).expect("it compiles");
    builder
}

/// The files of a folder, with their paths from there, in order.
fn files(folder: &std::path::Path, place: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let name = format!("{place}{}", entry.file_name().to_string_lossy());
        match entry.file_type().expect("a type").is_dir() {
            true => found.extend(files(&entry.path(), &format!("{name}/"))),
            false => found.push(name),
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_handed_over_is_manifest_sources_and_library_alone() {
    let builder = compiled();
    // What a build or a test left behind.
    let folder = draft(&builder, "words");
    fs::create_dir_all(folder.join("target/release")).expect("a folder");
    fs::write(folder.join("target/release/x"), "x").expect("a file");
    fs::write(folder.join("src/data.txt"), "x").expect("a file");
    std::os::unix::fs::symlink("/etc/hostname", folder.join("hostname")).expect("a link");
    builder.host().answer_control_with("extensions.add", |asked| {
        let copy = PathBuf::from(asked["path"].as_str().expect("a path"));
        assert!(copy.ends_with("words"), "{}", copy.display());
        let expected = ["Cargo.lock", "Cargo.toml", &library("words"), "manifest.yaml", "src/lib.rs"];
        assert_eq!(files(&copy, ""), expected);
        Ok(status("active", None))
    });
    assert_eq!(activate(&builder), Ok("`words` is an extension now, and active".to_owned()));
    assert!(!folder.exists(), "the draft has become an extension");
    assert!(!builder.data_folder().join("outgoing/words").exists(), "the copy is gone");
}

#[test]
fn code_is_compiled_after_its_last_change_before_it_is_handed_over() {
    let builder = native();
    assert!(refused(activate(&builder), FaultCode::Invalid).contains("builder_compile"));
    builds(&builder);
    assert!(call(&builder, "builder_compile", json!({"id": "words"})).is_ok());
    assert!(write(&builder, "words", "src/lib.rs", "something else").is_ok());
    assert!(refused(activate(&builder), FaultCode::Invalid).contains("builder_compile"));
    assert_eq!(builder.host().control_calls().len(), 1, "nothing but the template was asked for");
}

#[test]
fn what_waits_for_the_operator_is_said_to_model_and_user_with_the_command() {
    let builder = compiled();
    builder.host().answer_control("extensions.add", Ok(status("awaiting_approval", Some("native code"))));
    let said = activate(&builder).expect("it is handed over");
    for text in [said, builder.host().notified().concat()] {
        assert!(text.contains("drupe approvals allow words") && text.contains("native code"), "{text}");
    }
}

#[test]
fn what_cannot_be_activated_keeps_its_draft_and_says_why() {
    let builder = compiled();
    for state in ["failed", "skipped", "quarantined"] {
        builder.host().answer_control("extensions.add", Ok(status(state, Some("it has another layout"))));
        assert!(refused(activate(&builder), FaultCode::Invalid).contains("it has another layout"));
    }
    builder
        .host()
        .answer_control("extensions.add", Err(Fault::denied("there is an extension `words` already")));
    assert!(refused(activate(&builder), FaultCode::Denied).contains("already"));
    assert!(draft(&builder, "words").join(library("words")).exists());
    assert!(!builder.data_folder().join("outgoing/words").exists(), "the copy is gone");
}

#[test]
fn an_agent_without_code_takes_effect_with_the_restart_where_the_kernel_does_not_say_more() {
    for answer in [Value::Null, status("discovered", None)] {
        let builder = builder();
        assert!(call(&builder, "builder_draft", json!({"id": "words", "purpose": "counts"})).is_ok());
        builder.host().answer_control("extensions.add", Ok(answer));
        assert!(activate_agent(&builder).expect("it is handed over").contains("after a restart"));
        assert!(call(&builder, "builder_restart", json!({"reason": "words was made"})).is_ok());
        assert_eq!(builder.host().restarts(), ["words was made"]);
    }
}

#[test]
fn a_draft_is_not_handed_over_while_a_program_of_a_draft_runs() {
    let builder = Arc::new(compiled());
    let other_session = Arc::clone(&builder);
    builder.host().answer_process_with("cargo", move |_| {
        let builder = Arc::clone(&other_session);
        let told = std::thread::spawn(move || activate(&builder)).join().expect("it does not panic");
        assert!(refused(told, FaultCode::Busy).contains("compiled or tested"));
        Ok(FakeHost::ended(0, "", ""))
    });
    call(&builder, "builder_test", json!({"id": "words"})).expect("it passes");
    builder.host().answer_control("extensions.add", Ok(status("active", None)));
    activate(&builder).expect("nothing runs any more");
}

#[test]
fn no_program_of_a_draft_runs_while_one_is_handed_over() {
    let builder = Arc::new(compiled());
    let other_session = Arc::clone(&builder);
    builder.host().answer_control_with("extensions.add", move |_| {
        let builder = Arc::clone(&other_session);
        let test = move || call(&builder, "builder_test", json!({"id": "words"}));
        let told = std::thread::spawn(test).join().expect("it does not panic");
        assert!(refused(told, FaultCode::Busy).contains("handed over"));
        Ok(status("active", None))
    });
    activate(&builder).expect("nothing runs");
}

#[test]
fn what_is_asked_of_an_agent_with_servers_and_schedules_is_told_to_model_and_user_word_for_word() {
    let builder = builder();
    assert!(call(&builder, "builder_draft", json!({"id": "words", "purpose": "counts"})).is_ok());
    let guide = call(&builder, "builder_guide", json!({})).expect("a guide");
    let shown = guide.split("```yaml").nth(2).and_then(|rest| rest.split("```").next()).expect("both keys");
    let file = draft(&builder, "words").join("manifest.yaml");
    let manifest = fs::read_to_string(&file).expect("a file") + shown;
    assert!(write(&builder, "words", "manifest.yaml", &manifest).is_ok());
    let asked =
        r#"work at set times: `0 8 * * 1-5`; the MCP server `rhymes`: the program "mcp-server-rhymes""#;
    builder.host().answer_control_with("extensions.add", move |handed| {
        let copy = PathBuf::from(handed["path"].as_str().expect("a path"));
        let manifest = fs::read_to_string(copy.join("manifest.yaml")).expect("a file");
        assert!(manifest.contains("mcp_servers:") && manifest.contains("schedules:"), "{manifest}");
        Ok(status("awaiting_approval", Some(asked)))
    });
    let said = activate_agent(&builder).expect("it is handed over");
    for text in [said, builder.host().notified().concat()] {
        assert!(text.contains(asked) && text.contains("drupe approvals allow words"), "{text}");
    }
}

#[test]
fn an_agent_with_code_has_cases_too_and_says_that_they_were_not_run() {
    let builder = compiled();
    let hand_over = || {
        builder.host().answer_control("extensions.check", Ok(sound(true)));
        call(&builder, "builder_activate", json!({"id": "words"}))
    };
    assert!(refused(hand_over(), FaultCode::Invalid).contains("has no cases"));
    let cases = "agent: words\ncases: [{name: a, message: one two}]";
    assert!(write(&builder, "words", "cases.yaml", cases).is_ok());
    builds(&builder);
    assert!(call(&builder, "builder_compile", json!({"id": "words"})).is_ok());
    builder.host().answer_control("extensions.add", Ok(status("awaiting_approval", Some("native code"))));
    let said = hand_over().expect("it is handed over");
    for text in [said, builder.host().notified().concat()] {
        assert!(
            text.contains("cases of `words` were not run") && text.contains("drupe eval words"),
            "{text}"
        );
    }
}
