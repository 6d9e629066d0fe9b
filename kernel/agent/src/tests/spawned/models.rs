//! Agents that are described with a model: which they can have, and that nothing gets around what bounds their callers.

use futures_util::stream::BoxStream;

use super::*;

/// Models in order of preference, of which the first always answers.
struct List(Vec<Arc<Plays>>);

impl Model for List {
    fn profile(&self) -> &ModelProfile {
        self.0[0].profile()
    }

    fn members(&self) -> Vec<Arc<dyn Model>> {
        self.0.iter().map(|one| Arc::clone(one) as Arc<dyn Model>).collect()
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        self.0[0].stream(request)
    }
}

fn plays(name: &str, change: impl FnOnce(&mut ModelProfile), scripts: &[(&str, &[Reply])]) -> Arc<Plays> {
    let mut plays = Plays::new(scripts);
    plays.profile.name = name.into();
    change(&mut plays.profile);
    Arc::new(plays)
}

/// A root with the models `own/first` and `own/second`, whose agent `sub` has the model `other/free`.
struct House {
    first: Arc<Plays>,
    second: Arc<Plays>,
    other: Arc<Plays>,
}

impl House {
    fn new(root: &[Reply], other: impl FnOnce(&mut ModelProfile)) -> Self {
        let inline: (&str, &[Reply]) = ("main-inline", &[say("inline is done")]);
        Self {
            first: plays("own/first", |_| {}, &[("main", root), inline]),
            second: plays("own/second", |_| {}, &[inline]),
            other: plays("other/free", other, &[("sub", &[say("a part")]), inline]),
        }
    }

    fn case(&self, limits: impl FnOnce(&mut drupe_extension_api::DefinitionLimits)) -> Case {
        let mut main = definition("main");
        limits(&mut main.limits);
        let sub = looping(definition("sub"), &self.other, []);
        let own = Fake::says("own").class(EffectClass::Pure).registered();
        let tools = spawn_agent::tools().into_iter().chain([as_tool(&sub), own]);
        let list = List(vec![Arc::clone(&self.first), Arc::clone(&self.second)]);
        let agent = LoopAgent::new(main, registry(tools), Arc::new(list), false);
        Case::new(Arc::new(agent), &self.first)
    }
}

fn described(model: &str, tools: &[&str]) -> (&'static str, String) {
    let spawned = json!({"instructions": "Only this.", "tools": tools, "model": model, "task": "x"});
    ("spawn_agent", spawned.to_string())
}

fn each(models: &[&str]) -> Vec<Reply> {
    let spawned: Vec<_> = models.iter().map(|model| described(model, &[])).collect();
    let handles: Vec<String> = (0..).zip(models).map(|(at, _)| handle(1, at)).collect();
    vec![calls(&spawned), calls(&[wait(&handles)]), say("done")]
}

#[tokio::test]
async fn one_that_is_described_can_have_each_model_of_its_caller_and_of_the_agents_that_this_can_call() {
    let models = ["own/first", "own/second", "other/free"];
    let house = House::new(&each(&models), |_| {});
    let seen = house.case(|_| {}).run().await;
    let asked = [&house.first, &house.second, &house.other].map(|model| model.asked_by("main-inline"));
    assert_eq!(asked, [1, 1, 1], "{:?}", seen.told());
    let steps = seen.entries.iter().filter_map(|entry| match entry {
        Entry::Step { model, invocation, .. } => Some((invocation.clone(), model.as_str())),
        _ => None,
    });
    let begun = |id: &drupe_extension_api::InvocationId| {
        seen.entries.iter().any(|entry| matches!(entry, Entry::Begin { invocation, agent, .. } if invocation == id && agent.as_str() == "main-inline"))
    };
    let mut named: Vec<&str> = steps.filter(|(run, _)| begun(run)).map(|(_, model)| model).collect();
    named.sort_unstable();
    assert_eq!(named, ["other/free", "own/first", "own/second"]);
}

#[tokio::test]
async fn after_any_cut_it_has_the_same_model() {
    let models = ["own/second", "other/free"];
    let journal = Arc::new(MemoryJournal::default());
    let case = |journal: &Arc<MemoryJournal>, resumed| {
        let house = House::new(&each(&models), |_| {});
        (Case { journal: Arc::clone(journal), resumed, ..house.case(|_| {}) }, house)
    };
    case(&journal, false).0.run().await;
    for commits in 0..journal.batches().len() {
        let cut = crashed(&journal, commits).await;
        let (case, house) = case(&cut, true);
        let seen = case.run().await;
        assert_eq!(
            (seen.response.content.as_str(), seen.spend.invocations),
            ("done", 3),
            "cut after {commits}"
        );
        assert_eq!(house.first.asked_by("main-inline"), 0, "cut after {commits}");
        let answered = seen.entries.iter().filter(|entry| matches!(entry, Entry::End { below: true, .. }));
        assert_eq!(answered.count(), 2, "cut after {commits}");
    }
}

/// What a caller that describes an agent with that model is told.
async fn refused(
    call: (&str, String),
    other: impl FnOnce(&mut ModelProfile),
    limits: impl FnOnce(&mut drupe_extension_api::DefinitionLimits),
) -> String {
    let house = House::new(&[calls(&[call]), say("done")], other);
    let seen = house.case(limits).run().await;
    assert_eq!(house.other.requests().len() + house.second.requests().len(), 0, "{:?}", seen.told());
    assert_eq!((seen.spend.invocations, seen.statuses()), (1, vec![ToolStatus::Error]));
    seen.told().remove(0)
}

#[tokio::test]
async fn a_model_that_its_caller_does_not_reach_is_refused_with_those_that_it_does() {
    let all = "you can name own/first, own/second, other/free";
    for name in ["dear/one", "default", "second", "", "own/firs"] {
        let told = refused(described(name, &[]), |_| {}, |_| {}).await;
        assert_eq!(told, format!("model_not_found: there is no model `{name}` for you; {all}"));
    }
    let spawned = json!({"agent": "sub", "model": "own/second", "task": "x"}).to_string();
    let told = refused(("spawn_agent", spawned), |_| {}, |_| {}).await;
    assert!(told.starts_with("`tools` and `model` go with `instructions`"), "{told}");
}

#[tokio::test]
async fn a_model_without_a_price_is_none_for_whoever_has_a_limit_of_cost() {
    let priced = |profile: &mut ModelProfile| profile.price = Some(Price::flat(1.0, 1.0, 1.0));
    let root = [calls(&[described("other/free", &[])]), say("done")];
    let mut house = House::new(&root, |_| {});
    house.first = plays("own/first", priced, &[("main", &root)]);
    house.second = plays("own/second", priced, &[]);
    let seen = house.case(|limits| limits.max_cost_usd = Some(1.0)).run().await;
    let told = &seen.told()[0];
    assert!(
        told.starts_with(
            "model_unfit: `max_cost_usd` is set, but the price of model `other/free` is not known"
        ),
        "{told}"
    );
    assert!(house.other.requests().is_empty());
}

#[tokio::test]
async fn a_model_that_calls_no_tools_is_none_for_whoever_is_to_have_some() {
    let told = refused(described("other/free", &["own"]), |profile| profile.tools = false, |_| {}).await;
    assert!(told.starts_with("model_unfit: `other/free` cannot call tools"), "{told}");
    let house = House::new(&each(&["other/free"]), |profile| profile.tools = false);
    house.case(|_| {}).run().await;
    let requests = house.other.requests();
    assert!(requests.len() == 1 && requests[0].tools.is_empty() && requests[0].deferred.is_empty());
}
