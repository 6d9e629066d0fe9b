//! Cases of drafts.

use drupe_extension_api::control::Trial;

use super::*;

/// A builder with a draft `haiku` that has these cases.
fn with(cases: &str) -> Harness<Builder> {
    let builder = builder();
    assert!(call(&builder, "builder_draft", json!({"id": "haiku", "purpose": "writes haikus"})).is_ok());
    assert!(write(&builder, "haiku", "cases.yaml", cases).is_ok());
    builder
}

fn eval(builder: &Harness<Builder>) -> Result<String, Fault> {
    call(builder, "builder_eval", json!({"id": "haiku"}))
}

fn activate(builder: &Harness<Builder>) -> Result<String, Fault> {
    builder.host().answer_control("extensions.check", Ok(sound(true)));
    call(builder, "builder_activate", json!({"id": "haiku"}))
}

fn answers(builder: &Harness<Builder>, answer: Result<Value, Fault>) {
    builder.host().answer_control("extensions.try", answer);
}

/// The trials that were asked for, oldest first.
fn trials(builder: &Harness<Builder>) -> Vec<Trial> {
    let asked = builder.host().control_calls().into_iter().filter(|(method, _)| method == "extensions.try");
    asked.map(|(_, params)| serde_json::from_value(params).expect("a trial")).collect()
}

const CRAB: &str = "agent: haiku\ncases: [{name: a crab, message: rust, timeout_s: 7, expect: {contains: crab, tools: kv_get}}]";

#[test]
fn cases_that_mean_nothing_or_ask_somebody_else_are_faults_of_the_draft() {
    let many = (0..9).map(|nth| format!("{{name: n{nth}, message: x}}")).collect::<Vec<_>>().join(", ");
    for (cases, part) in [
        ("cases: []".to_owned(), "there are no cases"),
        ("cases: [{name: a, message: x, expects: {}}]".to_owned(), "unknown field"),
        ("cases: [{name: a, message: x}]".to_owned(), "case `a` does not ask `haiku`"),
        (
            "agent: haiku\ncases: [{name: a, message: x, agent: poet}]".to_owned(),
            "case `a` does not ask `haiku`",
        ),
        (format!("agent: haiku\ncases: [{many}]"), "9 cases, and 8 are the most"),
    ] {
        let builder = with(&cases);
        builder.host().answer_control("extensions.check", Ok(sound(true)));
        let checked = call(&builder, "builder_check", json!({"id": "haiku"}));
        assert!(refused(checked, FaultCode::Invalid).contains(part), "{cases}");
        assert!(refused(eval(&builder), FaultCode::Invalid).contains(part), "{cases}");
        assert!(trials(&builder).is_empty(), "nothing is spent for them");
    }
    let builder = with(CRAB);
    fs::remove_file(draft(&builder, "haiku").join("cases.yaml")).expect("it is there");
    builder.host().answer_control("extensions.check", Ok(sound(true)));
    let checked = call(&builder, "builder_check", json!({"id": "haiku"}));
    assert!(refused(checked, FaultCode::Invalid).contains("has no cases"));
    // What is no agent needs none.
    builder.host().answer_control("extensions.check", Ok(sound(false)));
    assert!(call(&builder, "builder_check", json!({"id": "haiku"})).is_ok());
}

#[test]
fn what_passed_is_activated_and_whatever_was_changed_since_is_not() {
    let builder = with(CRAB);
    answers(&builder, Ok(tried("a crab", &["kv_get"], true)));
    assert_eq!(eval(&builder), Ok("1 of 1 cases passed; 7 tokens".to_owned()));
    let asked = trials(&builder).remove(0);
    assert_eq!((asked.task.as_str(), asked.time_budget_ms), ("rust", Some(7_000)));
    assert!(asked.path.ends_with("outgoing/haiku") && !PathBuf::from(&asked.path).exists(), "{}", asked.path);

    // Another file, in whichever way it came to be another one.
    let prompt = draft(&builder, "haiku").join("prompt.md");
    let before = fs::read_to_string(&prompt).expect("a file");
    fs::write(&prompt, "another").expect("a file");
    assert!(refused(activate(&builder), FaultCode::Invalid).contains("since its last change"));
    fs::write(&prompt, before).expect("a file");
    builder.host().answer_control("extensions.add", Ok(status("active", None)));
    assert_eq!(activate(&builder), Ok("`haiku` is an extension now, and active".to_owned()));
    assert!(builder.host().notified().is_empty());
    // A further draft of that id is another one.
    assert!(call(&builder, "builder_draft", json!({"id": "haiku", "purpose": "writes haikus"})).is_ok());
    assert!(write(&builder, "haiku", "cases.yaml", CRAB).is_ok());
    assert!(refused(activate(&builder), FaultCode::Invalid).contains("since its last change"));
}

#[test]
fn what_failed_says_why_is_not_activated_and_is_tried_a_bounded_number_of_times() {
    let builder = with(CRAB);
    for left in (0..5).rev() {
        answers(&builder, Ok(tried("a shell", &[], true)));
        let said = refused(eval(&builder), FaultCode::Invalid);
        for part in [
            "- a crab: the answer does not hold `crab`: a shell",
            "`kv_get` was not called",
            &format!("{left} more times"),
        ] {
            assert!(said.contains(part), "{said}");
        }
        assert!(refused(activate(&builder), FaultCode::Invalid).contains("its cases have failed"));
    }
    assert!(refused(eval(&builder), FaultCode::Denied).contains("failed 5 times"));
    assert_eq!(trials(&builder).len(), 5, "no model is asked a sixth time");
}

#[test]
fn what_cannot_be_run_is_activated_with_the_reason_and_the_user_hears_of_it() {
    for (answer, reason) in [
        (Err(Fault::denied("it brings secrets")), "it brings secrets"),
        (Err(Fault::new(FaultCode::NotConfigured, "no key")), "no key"),
        (Err(Fault::new(FaultCode::Budget, "the day is used up")), "the day is used up"),
        (Ok(tried("a shell", &[], false)), "no language model is configured"),
    ] {
        let builder = with(CRAB);
        answers(&builder, answer);
        assert!(eval(&builder).expect("it is told").contains(reason));
        builder.host().answer_control("extensions.add", Ok(status("active", None)));
        let said = activate(&builder).expect("it is handed over");
        for text in [said, builder.host().notified().concat()] {
            assert!(text.contains(reason) && text.contains("drupe eval haiku"), "{text}");
        }
    }
    // Another fault is none of these: nobody knows what came of the cases.
    let builder = with(CRAB);
    answers(&builder, Err(Fault::internal("the journal is gone")));
    refused(eval(&builder), FaultCode::Internal);
    assert!(refused(activate(&builder), FaultCode::Invalid).contains("since its last change"));
}

#[test]
fn what_failed_once_is_not_excused_by_what_keeps_it_from_being_run() {
    let used_up = || Err(Fault::new(FaultCode::Budget, "the day is used up"));
    let builder = with(CRAB);
    answers(&builder, Ok(tried("a shell", &[], true)));
    assert!(eval(&builder).is_err());
    answers(&builder, used_up());
    assert!(refused(eval(&builder), FaultCode::Invalid).contains("failed before"));
    assert!(refused(activate(&builder), FaultCode::Invalid).contains("its cases have failed"));

    // Nor where it is another case that cannot be run.
    let builder =
        with("agent: haiku\ncases: [{name: a, message: x, expect: {contains: crab}}, {name: b, message: y}]");
    answers(&builder, Ok(tried("a shell", &[], true)));
    answers(&builder, used_up());
    let said = refused(eval(&builder), FaultCode::Invalid);
    assert!(said.contains("2 of 2 cases failed") && said.contains("- b: it could not be run"), "{said}");
    assert!(refused(activate(&builder), FaultCode::Invalid).contains("its cases have failed"));
}

#[test]
fn a_draft_is_tried_or_handed_over_by_one_at_a_time() {
    let builder = std::sync::Arc::new(with(CRAB));
    let other_session = std::sync::Arc::clone(&builder);
    builder.host().answer_control_with("extensions.try", move |_| {
        let both = move || (eval(&other_session), activate(&other_session));
        let (tried_too, handed_over) = std::thread::spawn(both).join().expect("it does not panic");
        assert!(refused(tried_too, FaultCode::Busy).contains("being tried"));
        assert!(refused(handed_over, FaultCode::Busy).contains("being tried"));
        Ok(tried("a crab", &["kv_get"], true))
    });
    assert!(eval(&builder).is_ok());
    answers(&builder, Ok(tried("a crab", &["kv_get"], true)));
    assert!(eval(&builder).is_ok(), "it is free again");
}

#[test]
fn an_answer_is_judged_by_an_agent_that_knows_nothing_of_the_draft() {
    let cases = "agent: haiku\ncases: [{name: a, message: rust, expect: {judge: Is it a haiku?, agents: [haiku, poet]}}]";
    for (verdict, passes) in [
        (r#"{"pass": true, "reason": "it is"}"#, Ok(())),
        (
            r#"{"pass": false, "reason": "it has two lines"}"#,
            Err("the judge finds it wrong: it has two lines"),
        ),
        ("yes", Err("the judge gave no verdict: yes")),
    ] {
        let builder = with(cases);
        answers(&builder, Ok(tried("old crab", &["agent_poet"], true)));
        answers(&builder, Ok(tried(verdict, &[], true)));
        match passes {
            Ok(()) => assert_eq!(eval(&builder), Ok("1 of 1 cases passed; 14 tokens".to_owned())),
            Err(part) => assert!(refused(eval(&builder), FaultCode::Invalid).contains(part)),
        }
        let asked = trials(&builder);
        assert!(
            asked[1].path.ends_with("own/builder_answer_judge") && asked[1].name != asked[0].name,
            "{asked:?}"
        );
        assert!(asked[1].task.contains("Is it a haiku?") && asked[1].task.contains("old crab"), "{asked:?}");
    }
}
