//! Runs that are cut off after any commit, and go on.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use drupe_extension_api::{EffectClass, EffectId, EventBody, Message, Spend, ToolStatus, wire::LookupResult};
use proptest::prelude::*;

use super::*;
use crate::*;

const CLASSES: [(&str, EffectClass); 3] =
    [("pure", EffectClass::Pure), ("idem", EffectClass::Idempotent), ("once", EffectClass::Once)];

/// Scripts of a root and of the agent `sub` that it may call.
#[derive(Debug, Clone)]
struct Script {
    root: Vec<Vec<String>>,
    sub: Vec<Vec<String>>,
}

impl Script {
    fn of(root: &[&[&str]], sub: &[&[&str]]) -> Self {
        let own =
            |steps: &[&[&str]]| steps.iter().map(|s| s.iter().map(|n| (*n).to_owned()).collect()).collect();
        Self { root: own(root), sub: own(sub) }
    }

    fn replies(steps: &[Vec<String>], answer: &str) -> Vec<Reply> {
        let step = |calls: &Vec<String>| {
            let parameters = |name: &str| match name {
                "agent_sub" => r#"{"task": "t"}"#,
                "refuse" => r#"{"reason": "not mine"}"#,
                _ => "{}",
            };
            let calls: Vec<(&str, &str)> = calls.iter().map(|n| (n.as_str(), parameters(n))).collect();
            call(&calls)
        };
        steps.iter().map(step).chain([say(answer)]).collect()
    }

    fn case(&self, journal: &Arc<MemoryJournal>, world: &Arc<World>, resumed: bool) -> Case {
        let (root, sub) = (Self::replies(&self.root, "done"), Self::replies(&self.sub, "a part"));
        let model = Arc::new(Plays::new(&[("main", &root), ("sub", &sub)]));
        let tool =
            |(name, class): (&str, _)| Fake::says(name).class(class).counted(world, journal).registered();
        let mut below: Vec<_> = CLASSES.map(tool).into();
        below.push(refuse::tool());
        let inner = registry([tool(("inner", EffectClass::Once))]);
        let outer = Fake::new("outer", Does::Calls(inner, "inner")).class(EffectClass::Idempotent);
        below.push(outer.counted(world, journal).registered());
        let sub = looping(definition("sub"), &model, below.clone());
        below.push(as_tool(&sub));
        let root = looping(definition("main"), &model, below);
        Case { journal: Arc::clone(journal), resumed, ..Case::new(root, &model) }
    }
}

/// Runs a case whole, and again after a cut at each commit: the answer, the sums and what the root's model is shown
/// last are the same. `case` makes it anew for a journal, which may hold records; gives the whole run.
pub async fn same_after_any_cut(case: impl Fn(&Arc<MemoryJournal>, bool) -> Case) -> Seen {
    let journal = Arc::new(MemoryJournal::default());
    let whole = case(&journal, false).run().await;
    for (commits, checkpoint) in (0..journal.batches().len()).flat_map(|n| [(n, false), (n, true)]) {
        let cut = crashed(&journal, commits).await;
        let seen = Case { checkpoint, ..case(&cut, true) }.run().await;
        assert_eq!(seen.response.content, whole.response.content, "cut after {commits}");
        assert_eq!(sums(seen.spend), sums(whole.spend), "cut after {commits}");
        let last = |seen: &Seen| seen.model.requests().pop().map(|r| (r.messages, r.tools));
        if let Some(last) = last(&seen) {
            let whole = whole.model.requests().pop().map(|r| (r.messages, r.tools));
            assert_eq!(Some(last), whole, "cut after {commits}");
        }
    }
    whole
}

/// Effects that have started, as far as is recorded, and whose result is not there.
fn open_effects(journal: &MemoryJournal) -> HashMap<EffectId, EffectClass> {
    let mut open = HashMap::new();
    for entry in entries(journal) {
        match entry {
            Entry::Intent { effect, class, waits: false, .. } => drop(open.insert(effect, class)),
            Entry::Started { effect, .. } => drop(open.insert(effect, EffectClass::Once)),
            Entry::Result { effect, .. } => drop(open.remove(&effect)),
            _ => {}
        }
    }
    open
}

/// What must be the same however often a run was cut off.
fn sums(spend: Spend) -> Spend {
    Spend { elapsed_ms: 0, ..spend }
}

/// Cuts the run after every commit and lets it go on; that run again, `again` times over.
async fn check(script: &Script, again: u32) {
    let (journal, world) = (Arc::default(), Arc::default());
    let whole = script.case(&journal, &world, false).run().await;
    cut_everywhere(script, &journal, 0, &world.runs(), &whole, again).await;
}

/// Cuts `journal` after each of its commits from `first` on; `ran` are the effects that ran while it was written,
/// each with the commits that there were.
async fn cut_everywhere(
    script: &Script,
    journal: &MemoryJournal,
    first: usize,
    ran: &[(EffectId, usize)],
    whole: &Seen,
    again: u32,
) {
    for (commits, checkpoint) in (first..=journal.batches().len()).flat_map(|n| [(n, false), (n, true)]) {
        let cut = crashed(journal, commits).await;
        let (open, kept) = (open_effects(&cut), cut.batches().len());
        let known = entries(&cut).filter_map(|e| result_of(&e)).collect();
        let world = Arc::new(World::default());
        let seen = Case { checkpoint, ..script.case(&cut, &world, true) }.run().await;
        assert_eq!(seen.response.content, whole.response.content, "cut after {commits}");
        assert_eq!(seen.response.status, whole.response.status, "cut after {commits}");
        assert_eq!(sums(seen.spend), sums(whole.spend), "cut after {commits}");
        let before = ran.iter().filter(|(_, at)| *at <= commits).map(|(effect, _)| (effect.clone(), 0));
        let runs: Vec<(EffectId, usize)> = before.chain(world.runs()).collect();
        let notes = |seen: &Seen| seen.entries.iter().filter(|e| matches!(e, Entry::Note { .. })).count();
        assert_eq!(notes(&seen), notes(whole), "cut after {commits}");
        promises_are_kept(&seen, &known, &open, &world.runs(), &runs);
        if again > 0 {
            Box::pin(cut_everywhere(script, &cut, kept, &runs, &seen, again - 1)).await;
        }
    }
}

fn entries(journal: &MemoryJournal) -> impl Iterator<Item = Entry> {
    journal.batches().into_iter().flat_map(|b| b.entries)
}

fn result_of(entry: &Entry) -> Option<EffectId> {
    match entry {
        Entry::Result { effect, .. } => Some(effect.clone()),
        _ => None,
    }
}

/// Of the effects that had a result (`known`) or only an intent (`open`) when the run was cut off, what ran
/// `after` it, and in all `runs`.
fn promises_are_kept(
    seen: &Seen,
    known: &HashSet<EffectId>,
    open: &HashMap<EffectId, EffectClass>,
    after: &[(EffectId, usize)],
    runs: &[(EffectId, usize)],
) {
    let once = |effect: &EffectId| {
        seen.entries
            .iter()
            .any(|e| matches!(e, Entry::Intent { effect: of, class: EffectClass::Once, .. } if of == effect))
    };
    for (effect, _) in runs.iter().filter(|(effect, _)| once(effect)) {
        assert_eq!(runs.iter().filter(|(of, _)| of == effect).count(), 1, "{effect} ran more than once");
    }
    for (effect, _) in after {
        assert!(!known.contains(effect), "{effect} has a result, and ran again");
    }
    for (effect, class) in open {
        let unknown = seen.entries.iter().any(|e| {
            matches!(e, Entry::Result { effect: of, status: ToolStatus::OutcomeUnknown, .. } if of == effect)
        });
        assert_eq!(unknown, *class == EffectClass::Once, "{effect}");
        // What is harmless runs again, but for an agent, which goes on.
        let ran = after.iter().any(|(of, _)| of == effect);
        assert!(!ran || *class != EffectClass::Once, "{effect}");
    }
    let told = seen.diagnostics().into_iter().filter(|code| *code == "outcome_unknown").count();
    let wanted =
        seen.entries.iter().filter(|e| matches!(e, Entry::Result { status: ToolStatus::OutcomeUnknown, .. }));
    assert_eq!(told, wanted.count(), "the user is told of every unknown outcome once");
}

#[tokio::test]
async fn a_run_goes_on_after_a_cut_at_any_commit() {
    let script = Script::of(&[&["pure", "idem", "once"], &["agent_sub", "once"]], &[&["once", "pure"]]);
    check(&script, 0).await;
}

#[tokio::test]
async fn a_run_that_was_cut_off_twice_goes_on() {
    check(&Script::of(&[&["once", "agent_sub"]], &[&["idem"]]), 1).await;
}

#[tokio::test]
async fn calls_that_code_makes_within_a_run_are_found_again_after_a_cut() {
    check(&Script::of(&[&["pure"], &["outer", "once"], &["idem"]], &[]), 1).await;
    check(&Script::of(&[&["agent_sub"], &["once"]], &[&["outer"]]), 0).await;
}

#[tokio::test]
async fn refusals_are_found_again_after_a_cut() {
    check(&Script::of(&[&["refuse", "once", "idem"]], &[]), 1).await;
    check(&Script::of(&[&["agent_sub", "once"]], &[&["pure", "refuse", "once"]]), 0).await;
}

#[tokio::test]
async fn forged_names_stay_refused_after_a_cut() {
    check(&Script::of(&[&["shell", "once", "ONCE"], &["shell"]], &[]), 1).await;
}

#[tokio::test]
async fn a_run_that_repeats_itself_ends_the_same_after_a_cut() {
    check(&Script::of(&[&["once"][..]; 5], &[]), 0).await;
    check(&Script::of(&[&["agent_sub"], &["pure"]], &[&["idem"][..]; 5]), 0).await;
}

fn steps(names: &'static [&'static str]) -> impl Strategy<Value = Vec<Vec<String>>> {
    let name = proptest::sample::select(names).prop_map(str::to_owned);
    proptest::collection::vec(proptest::collection::vec(name, 1..4), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_script_goes_on_after_a_cut_at_any_commit(
        root in steps(&["pure", "idem", "once", "shell", "agent_sub"]),
        sub in steps(&["pure", "idem", "once", "shell"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(check(&Script { root, sub }, 0));
    }
}

/// A case of one call, cut where only its intent is recorded; the tool is as given when the run goes on.
async fn cut_in_call(tool: Option<Fake>) -> Seen {
    let (journal, world) = (Arc::new(MemoryJournal::default()), Arc::default());
    let script = [call(&[("once", "{}")]), say("done")];
    let first =
        Case { journal: Arc::clone(&journal), ..Case::of(&script, [Fake::says("once").registered()]) };
    first.run().await;
    let cut = crashed(&journal, 2).await;
    assert_eq!(open_effects(&cut).len(), 1);
    let tools = tool.map(|t| t.in_world(&world).registered());
    let seen = Case { journal: cut, resumed: true, ..Case::of(&script, tools) }.run().await;
    assert!(world.runs().is_empty(), "nothing runs again");
    seen
}

#[tokio::test]
async fn an_interrupted_call_is_looked_up_before_it_counts_as_unknown() {
    let done = LookupResult::Done { content: "it was done".into() };
    for (tool, status, says, unknown) in [
        (Some(Fake::says("once").lookup(done)), ToolStatus::Ok, "it was done", false),
        (
            Some(Fake::says("once").lookup(LookupResult::NotDone)),
            ToolStatus::Cancelled,
            "call it again",
            false,
        ),
        (Some(Fake::says("once")), ToolStatus::OutcomeUnknown, "not run again", true),
        (None, ToolStatus::OutcomeUnknown, "the tool no longer exists", true),
    ] {
        let gone = tool.is_none();
        let seen = cut_in_call(tool).await;
        assert_eq!(seen.statuses(), [status]);
        assert!(seen.told()[0].contains(says), "{:?}", seen.told());
        let unknown = unknown.then_some("outcome_unknown");
        let told: Vec<_> = gone.then_some("changed").into_iter().chain(unknown).collect();
        assert_eq!(seen.diagnostics(), told);
    }
}

#[tokio::test]
async fn what_a_lost_answer_may_have_cost_is_not_refunded() {
    let journal = Arc::new(MemoryJournal::default());
    let mut small = definition("main");
    small.limits.max_tokens_per_invocation = 250;
    let script = [say("done")];
    let case = |journal: &Arc<MemoryJournal>, resumed| Case {
        journal: Arc::clone(journal),
        resumed,
        ..Case::defined(small.clone(), &script, [])
    };
    case(&journal, false).run().await;
    // Twice the process dies between the question and the answer: each time 100 tokens and more are gone.
    let cut = crashed(&journal, 1).await;
    let seen = case(&cut, true).run().await;
    assert_eq!(seen.response.content, "done");
    assert!(seen.events.iter().any(|(_, e)| matches!(e, EventBody::StreamReset { .. })));
    let cut = crashed(&cut, 3).await;
    let seen = case(&cut, true).run().await;
    let last = seen.model.requests().pop().map(|r| r.max_output_tokens);
    assert!(last.is_none_or(|bound| bound < 50), "{last:?}");
}

#[tokio::test]
async fn the_model_is_shown_the_same_bytes_after_a_cut() {
    let text = "x".repeat(40_000);
    let script = [call(&[("long", "{}")]), call(&[("long", "{}")]), say("done")];
    let case = |journal: &Arc<MemoryJournal>, resumed| {
        let tool = Fake::new("long", Does::Says(text.clone())).class(EffectClass::Pure).registered();
        Case { journal: Arc::clone(journal), resumed, ..Case::of(&script, [tool]) }
    };
    let journal = Arc::new(MemoryJournal::default());
    let last = |seen: Seen| -> Vec<Message> {
        let request = seen.model.requests().pop().expect("the model was asked");
        request.messages.iter().map(|m| (**m).clone()).collect()
    };
    let whole = last(case(&journal, false).run().await);
    for commits in 0..journal.batches().len() {
        let cut = crashed(&journal, commits).await;
        assert_eq!(last(case(&cut, true).run().await), whole, "cut after {commits}");
    }
}
