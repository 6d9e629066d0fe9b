//! What is offered, through one door: tools and terms give what a model gets at once, what it looks up, and what is left out.

use drupe_extension_api::ExtensionId;

use super::*;
use crate::tests::tool;

/// `owner/name` or `owner/name:bytes`, each a tool. Gives the names of those that are offered at once, then those on demand,
/// then what is left out with the reason.
fn check(
    tools: &[&str],
    excluded: &[&str],
    model: Option<(bool, u64)>,
    most: usize,
) -> Result<String, String> {
    let tool = |text: &&str| {
        let (owner, name) = text.split_once('/').expect("an owner and a name");
        let (name, bytes) = name.split_once(':').unwrap_or((name, "0"));
        let owner = ExtensionId::new(owner).expect("an id").to_string();
        tool(owner.leak(), name, bytes.parse().expect("a number"))
    };
    let mut allowed = Allowed { tools: tools.iter().map(tool).collect(), ..Allowed::default() };
    excluded.iter().for_each(|tool| allowed.exclude(tool, "nobody may".into()));
    let profile = model.map(|(tools, context_window)| ModelProfile {
        name: "m".into(),
        tools,
        context_window,
        max_output_tokens: 100,
        price: None,
        images: false,
    });
    let registry =
        offer(&allowed, Terms { model: profile.as_ref(), most }).map_err(|clash| clash.to_string())?;
    let names = |specs: &[Arc<drupe_extension_api::ToolSpec>]| {
        specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let left: Vec<_> =
        registry.excluded().iter().map(|one| format!("{}: {}", one.tool, one.reason)).collect();
    Ok(format!("{} | {} | {}", names(registry.offered()), names(registry.deferred()), left.join(", ")))
}

#[test]
fn what_an_agent_may_use_is_offered_by_name_and_what_it_may_not_has_its_reason() {
    let offered = check(&["b/two", "a/one"], &["three"], Some((true, 100_000)), 10);
    assert_eq!(offered.as_deref(), Ok("one two |  | three: nobody may"));
}

#[test]
fn a_model_that_cannot_call_tools_is_offered_none_and_each_says_so() {
    let offered = check(&["a/one", "b/one"], &[], Some((false, 100_000)), 0);
    let why = "one: the model `m` cannot call tools";
    assert_eq!(offered, Ok(format!(" |  | {why}, {why}")), "nothing clashes of what is not offered");
}

#[test]
fn above_the_configured_number_or_half_of_the_window_schemas_are_brought_on_demand() {
    let many = ["a/one", "a/two", "a/three"];
    let large = ["a/one:900", "a/two:900"];
    for (tools, model, most, deferred) in [
        (&many[..], Some((true, 100_000)), 3, ""),
        (&many, Some((true, 100_000)), 2, "one three two"),
        // 1,848 bytes are 616 tokens at most.
        (&large, Some((true, 1_232)), 3, ""),
        (&large, Some((true, 1_200)), 3, "one two"),
        (&large, None, 3, ""),
    ] {
        let offered = check(tools, &[], model, most).expect("no clash");
        let found = offered.split(" | ").nth(1).expect("those on demand");
        assert_eq!(found, deferred, "{tools:?} {model:?} {most}: {offered}");
    }
}

#[test]
fn two_that_a_model_would_take_for_each_other_are_refused_unless_they_are_of_one_owner() {
    for (tools, refused) in [
        (["a/get_1", "b/get_l"], Some("looks like")),
        (["a/get", "b/get"], Some("is provided by both")),
        (["a/get_1", "a/get_l"], None),
    ] {
        let offered = check(&tools, &[], None, 10);
        match refused {
            Some(reason) => assert!(offered.as_ref().is_err_and(|why| why.contains(reason)), "{offered:?}"),
            None => assert_eq!(offered.as_deref(), Ok("get_1 get_l |  | ")),
        }
    }
}
