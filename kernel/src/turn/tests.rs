//! Which crashes count against a turn, and with which tools it is answered.

use std::path::Path;

use drupe_agent::{Conversation, Recipe};
use drupe_attachments::OutgoingFiles;
use drupe_extension_api::{control::Blamed, wire::Submit};
use drupe_journal::{Inbound, Origin};

use super::*;
use crate::extension::{change, tests::roster};

fn exit(crash: bool, blamed: &[&str]) -> ExitRecord {
    let blamed = blamed.iter().map(|id| Blamed { extension: (*id).into(), operation: "service.run".into() });
    ExitRecord {
        time: jiff::Timestamp::UNIX_EPOCH,
        pid: 1,
        generation: 1,
        how: "signal 6 (SIGABRT)".into(),
        crash,
        last_lines: Vec::new(),
        blamed: blamed.collect(),
    }
}

#[test]
fn a_turn_is_given_up_after_three_crashes_that_nobody_else_is_blamed_for() {
    let unexplained = || exit(true, &[]);
    let exits = [unexplained(), unexplained(), unexplained()];
    assert!(kills(&exits, 4));
    assert!(!kills(&exits, 3), "one of the crashes was before it");
    let suspects = [exit(true, &["a", "b"]), unexplained(), unexplained()];
    assert!(kills(&suspects, 4), "nobody is certain to have done it");
}

#[test]
fn crashes_that_are_certainly_an_extensions_do_not_count_against_a_turn() {
    let exits = [exit(true, &["a"]), exit(true, &["a"]), exit(true, &["a"])];
    assert!(!kills(&exits, 4));
    let mixed = [exit(true, &["a"]), exit(true, &[]), exit(true, &["a"]), exit(true, &[]), exit(true, &[])];
    assert!(!kills(&mixed, 6), "what ended the last kernel is known");
    assert!(kills(&mixed[1..], 5));
}

#[test]
fn a_turn_with_which_an_extension_crashes_without_end_is_given_up() {
    let exits: Vec<ExitRecord> = (0..10).map(|_| exit(true, &["a"])).collect();
    assert!(!kills(&exits, 10));
    assert!(kills(&exits, 11));
}

#[test]
fn a_turn_that_is_given_up_says_whose_crashes_these_were_and_what_can_be_done() {
    let told = |exits: &[ExitRecord]| {
        let response = hopeless(exits, 4);
        (response.class, response.error.unwrap_or_default())
    };
    let (class, error) = told(&[exit(true, &["a"])]);
    assert_eq!(class, Some(FailureClass::Tool), "it is no fault of drupe");
    assert!(error.contains("begun 4 times, and extension `a` crashed the daemon"), "{error}");
    for unexplained in [exit(true, &[]), exit(true, &["a", "b"])] {
        let (class, error) = told(&[unexplained]);
        assert_eq!(class, Some(FailureClass::Internal));
        assert!(
            error.contains("begun 4 times, and the daemon crashed") && error.contains("sent anew"),
            "{error}"
        );
    }
}

#[test]
fn restarts_in_order_do_not_count_against_a_turn() {
    let exits = [exit(true, &[]), exit(false, &[]), exit(false, &[]), exit(false, &[])];
    assert!(!kills(&exits, 5));
}

/// What turns of a home are answered with.
fn turns(home: &Path) -> Turns {
    let roster = roster(home);
    let (store, wired) = (roster.store.clone(), Arc::clone(&roster.wired));
    let outbox = Outbox::new(
        roster.life.clone(),
        store.clone(),
        wired,
        Arc::clone(&roster.bus),
        OutgoingFiles::new(roster.base.home.outgoing()),
    );
    let approvals = roster.base.config.approvals.clone();
    let policy = CallPolicy::new(approvals, store.clone(), Arc::clone(&roster.base.clock));
    Turns {
        store,
        roster,
        outbox: Arc::new(outbox),
        quotas: Arc::new(Quotas::unlimited()),
        gates: Arc::new(Gates::open()),
        ratios: Arc::default(),
        policy,
        reports: Reports::default(),
    }
}

#[tokio::test]
async fn a_turn_that_names_a_model_is_offered_tools_by_the_terms_of_that_model() {
    let home = tempfile::tempdir().expect("a folder");
    let config = "models:\n  aliases: {default: own/able}\n  providers:\n    own: {kind: openai_chat, base_url: \"http://127.0.0.1:9/v1\", api_key: x}\n  \
                  profiles:\n    own/able: {context_window: 100000}\n    own/large: {context_window: 200000}\n    \
                  own/small: {context_window: 1024}\n";
    std::fs::write(home.path().join("drupe.yaml"), config).expect("a file");
    let agent = home.path().join("extensions/a");
    std::fs::create_dir_all(&agent).expect("a folder");
    std::fs::write(agent.join("p.md"), "You help.").expect("a file");
    let more = "Helps with this. ".repeat(100);
    let manifest =
        format!("id: a\nname: a\ndescription: {more}\nagent: {{model: default, instructions: p.md}}\n");
    std::fs::write(agent.join("manifest.yaml"), manifest).expect("a file");
    let turns = turns(home.path());
    change::rescan(&turns.roster).await.expect("it is taken in");
    for (model, looks_up) in [(None, false), (Some("own/small"), true), (Some("own/large"), false)] {
        let session = "s".parse().expect("an id");
        let ask =
            Submit { model: model.map(str::to_owned), ..Submit::new(session, model.unwrap_or("own"), "hi") };
        let turn =
            turns.store.accept(Inbound::new(ask, Origin::OPERATOR)).await.expect("it is taken in").turn;
        let queued = turns.store.queued(&turn).await.expect("it is read").expect("it waits");
        let plan = plan::plan(&turns, &turns.roster.snapshot(), &queued, &Conversation::default(), false)
            .await
            .expect("it is read");
        let agent = plan.unwrap_or_else(|response| panic!("{response:?}")).agent;
        let recipe: Recipe =
            serde_json::from_str(&agent.recipe().expect("it has one").json).expect("its form");
        assert_eq!(recipe.definition.models.len(), 1, "{model:?}");
        // More than half of what it can read would be schemas.
        assert_eq!(!recipe.deferred.is_empty(), looks_up, "{model:?}: {:?}", recipe.tools);
    }
}
