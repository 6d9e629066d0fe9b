//! What a run was made of is kept by its content, and its requests can be built from it again.

use std::sync::Arc;

use drupe_extension_api::ToolSpec;

use super::*;
use crate::*;

/// A turn of `main` with that many tools of its own, all but the loop's deferred above two; what it kept.
async fn kept(instructions: &str, tools: usize) -> (Seen, Vec<KeptRecipe>) {
    let model = Arc::new(Plays::new(&[("main", &[say("done")])]));
    let definition = Definition { instructions: instructions.into(), ..definition("main") };
    let mut builder = RegistryBuilder::default();
    builder.defer_above(2);
    for n in 0..tools {
        let tool = Fake::says(&format!("tool_{n}")).described(&format!("The tool {n}."));
        builder.add(tool.registered()).expect("names are unique");
    }
    let shared = Arc::clone(&model) as Arc<dyn Model>;
    let agent: Arc<dyn Agent> = Arc::new(LoopAgent::new(definition, Arc::new(builder.build()), shared, true));
    let case = Case::new(agent, &model);
    let journal = Arc::clone(&case.journal);
    let seen = case.run().await;
    (seen, journal.batches().into_iter().flat_map(|batch| batch.recipes).collect())
}

#[tokio::test]
async fn a_request_can_be_built_again_from_what_its_run_was_made_of() {
    for tools in [0, 2, 5] {
        let (seen, kept) = kept("Work with <care>.", tools).await;
        let [kept] = &kept[..] else { panic!("one run begins: {kept:?}") };
        let named = seen.entries.iter().find_map(|entry| match entry {
            Entry::Begin { recipe, .. } => recipe.as_deref(),
            _ => None,
        });
        assert_eq!(named, Some(&*kept.hash));
        let recipe = Recipe::read(&kept.json).expect("what was kept is read");
        let requests = seen.model.requests();
        let request = &requests[0];
        assert_eq!(recipe.system(), *request.system);
        assert_eq!((&recipe.definition.parameters, recipe.root), (&*request.parameters, request.agent.root));
        assert_eq!(recipe.definition.limits, definition("main").limits);
        let specs = |specs: &[Arc<ToolSpec>]| specs.iter().map(|spec| (**spec).clone()).collect::<Vec<_>>();
        assert_eq!(recipe.tools, specs(&request.tools));
        assert_eq!(recipe.deferred, specs(&request.deferred));
        assert_eq!(recipe.deferred.len(), if tools > 2 { tools } else { 0 });
    }
}

#[tokio::test]
async fn the_same_content_has_the_same_hash_and_no_other_has() {
    let hash = async |instructions, tools| kept(instructions, tools).await.1[0].hash.clone();
    let same = hash("Work.", 2).await;
    assert_eq!(same, hash("Work.", 2).await);
    for other in [hash("Rest.", 2).await, hash("Work.", 1).await] {
        assert_ne!(same, other);
    }
}

#[tokio::test]
async fn what_a_run_is_made_of_is_in_the_commit_of_its_beginning_whoever_began_it() {
    let model = Arc::new(Plays::new(&[
        ("main", &[call(&[("agent_sub", r#"{"task": "t"}"#)]), say("done")]),
        ("sub", &[say("a part")]),
    ]));
    let sub = looping(definition("sub"), &model, []);
    let case = Case::new(looping(definition("main"), &model, [as_tool(&sub)]), &model);
    let journal = Arc::clone(&case.journal);
    case.run().await;
    for batch in journal.batches() {
        let named = batch.entries.iter().filter_map(|entry| match entry {
            Entry::Begin { recipe, .. } => recipe.as_deref(),
            _ => None,
        });
        let kept: Vec<_> = batch.recipes.iter().map(|recipe| &*recipe.hash).collect();
        assert_eq!(named.collect::<Vec<_>>(), kept);
    }
    assert_eq!(journal.batches().iter().map(|batch| batch.recipes.len()).sum::<usize>(), 2);
}
