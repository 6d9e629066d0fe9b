//! An agent that is asked only where a tool has something for it.

use std::sync::Arc;

use drupe_extension_api::{EffectClass, ResponseStatus, ToolCallRequest};

use super::{resume::same_after_any_cut, *};
use crate::*;

/// A turn of an agent whose condition gives this, or fails.
fn case(gives: Result<&'static str, &'static str>, journal: &Arc<MemoryJournal>, resumed: bool) -> Case {
    let tool = match gives {
        Ok(text) => Fake::new("look", fakes::Does::Says(text.into())),
        Err(why) => Fake::new("look", fakes::Does::Fails(why)),
    };
    let tools = registry([tool.class(EffectClass::Pure).registered()]);
    let model = Arc::new(Plays::new(&[("main", &[say("there is news")])]));
    let agent = looping(definition("main"), &model, []);
    let condition = ToolCallRequest { call_id: String::new(), name: "look".into(), arguments: "{}".into() };
    let agent: Arc<dyn Agent> = Arc::new(Conditional::new(agent, tools, condition));
    Case { journal: Arc::clone(journal), resumed, ..Case::new(agent, &model) }
}

#[tokio::test]
async fn no_model_is_asked_where_a_tool_has_nothing_and_else_it_is_told_what_there_is() {
    for nothing in ["", " \n", "[]", "null", "{}", "false"] {
        let seen = case(Ok(nothing), &Arc::default(), false).run().await;
        assert_eq!(
            (seen.response.status, seen.response.content.as_str()),
            (ResponseStatus::Success, Conditional::NOTHING)
        );
        assert_eq!(seen.model.requests().len(), 0, "{nothing:?}");
    }
    let seen = case(Ok("a letter came"), &Arc::default(), false).run().await;
    assert_eq!(seen.response.content, "there is news");
    let asked = format!("{:?}", seen.model.requests()[0].messages);
    assert!(asked.contains("`look` gave this") && asked.contains("a letter came"), "{asked}");
    let failed = case(Err("no network"), &Arc::default(), false).run().await;
    assert_eq!((failed.response.status, failed.model.requests().len()), (ResponseStatus::Error, 0));
    assert!(failed.response.error.expect("why").contains("no network"));
}

#[tokio::test]
async fn a_condition_is_asked_once_whatever_cuts_the_run_off() {
    same_after_any_cut(|journal, resumed| case(Ok("a letter came"), journal, resumed)).await;
    same_after_any_cut(|journal, resumed| case(Ok(""), journal, resumed)).await;
}
