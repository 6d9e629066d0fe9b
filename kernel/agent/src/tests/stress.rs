//! What models and tools do at their worst.

use std::sync::Arc;

use drupe_extension_api::{FailureClass, ToolStatus};

use super::*;
use crate::*;

const TASK: &str = r#"{"task": "t"}"#;

#[tokio::test]
async fn a_thousand_calls_in_one_step_are_bounded() {
    let calls: Vec<(&str, &str)> = vec![("agent_sub", TASK); 1_000];
    let run = async |per_step: u32| {
        let script = [call(&calls), say("done")];
        let model = Arc::new(Plays::new(&[("main", &script), ("sub", &[say("a part")])]));
        let sub = looping(definition("sub"), &model, []);
        let mut main = definition("main");
        (main.limits.max_tool_calls_per_step, main.limits.max_tool_calls) = (per_step, 2_000);
        main.limits.max_tokens_per_invocation = 1_000_000;
        Case::new(looping(main, &model, [as_tool(&sub)]), &model).run().await
    };
    let seen = run(16).await;
    assert_eq!((seen.response.content.as_str(), seen.model.asked_by("sub")), ("done", 16));
    let seen = run(1_000).await;
    assert_eq!((seen.model.asked_by("sub"), seen.spend.invocations), (31, 32));
    assert_eq!(seen.statuses().iter().filter(|s| **s == ToolStatus::Ok).count(), 31);
}

#[tokio::test]
async fn calls_beyond_the_limit_of_a_run_do_not_run() {
    let world = Arc::new(World::default());
    let tool = Fake::says("a").in_world(&world).registered();
    let calls: Vec<(&str, &str)> = vec![("a", "{}"); 1_000];
    let mut main = definition("main");
    main.limits.max_tool_calls_per_step = 1_000;
    let seen = Case::defined(main, &[call(&calls)], [tool]).run().await;
    assert_eq!((world.runs().len(), seen.spend.tool_calls), (200, 200));
    assert_eq!((seen.response.class, seen.exceeded()), (Some(FailureClass::Budget), vec!["max_tool_calls"]));
    assert_eq!(seen.model.requests().len(), 1);
}

#[tokio::test]
async fn a_model_that_never_comes_to_an_end_is_stopped() {
    let script: Vec<Reply> = (0..100).map(|n| call(&[("a", &format!(r#"{{"n": {n}}}"#))])).collect();
    let seen = Case::of(&script, [Fake::says("a").registered()]).run().await;
    assert_eq!((seen.model.requests().len(), seen.exceeded()), (10, vec!["max_turns"]));
}

#[tokio::test]
async fn a_very_long_answer_is_whole() {
    let word = ModelEvent::Text("abc ".into());
    let usage = Usage { input_tokens: 10, output_tokens: 50_000, ..Usage::default() };
    let end = ModelEvent::Done { usage: Some(usage), stop: StopReason::End, model: "plays/script".into() };
    let events = std::iter::repeat_n(word, 50_000).chain([end]).collect();
    let mut main = definition("main");
    main.limits.max_tokens_per_invocation = 100_000;
    let seen = Case::defined(main, &[Reply::Gives(events)], []).run().await;
    assert_eq!((seen.response.content.len(), seen.spend.usage.output_tokens), (200_000, 2 * 100 + 4_096));
}

#[tokio::test]
async fn a_result_of_a_hundred_megabytes_is_kept_and_shown_in_part() {
    let tool = Fake::new("a", Does::Fills(100 << 20)).registered();
    let seen = Case::of(&[call(&[("a", "{}")]), say("done")], [tool]).run().await;
    let sizes: Vec<(usize, usize)> = seen
        .entries
        .iter()
        .filter_map(|e| match e {
            Entry::Result { content, .. } => Some((content.len(), content.capacity())),
            _ => None,
        })
        .collect();
    assert!(sizes[0].0 > KEPT_MAX_BYTES && sizes[0].1 < KEPT_MAX_BYTES + 1_000, "{sizes:?}");
    assert!(seen.told()[0].len() <= TOOL_RESPONSE_MAX_BYTES);
}

/// Names that look like those of tools and are none of this run.
fn forged() -> Vec<String> {
    let own = ["kv_get", "files_read", "agent_sub"];
    let others =
        ["shell", "kv_delete", "mcp__github__push", "agent_other", "search_tools", "update_plan", "refuse"];
    let twins =
        [('a', 'а'), ('e', 'е'), ('i', 'і'), ('s', 'ѕ'), ('k', 'ｋ'), ('g', 'ɡ'), ('t', 'ｔ'), ('_', '＿')];
    let around =
        [" ", "\t", "\n", "\0", "\u{200b}", "\u{feff}", "\u{202e}", ".", "/", "\\", "-", "_", "\"", "'", "x"];
    let mut names: Vec<String> = Vec::new();
    for name in own {
        names.extend([
            name.to_uppercase(),
            name.replace('_', ""),
            name.replace('_', "-"),
            name.replace('_', "."),
        ]);
        names.extend((1..name.len()).map(|end| name[..end].to_owned()));
        names.extend((1..name.len()).map(|start| name[start..].to_owned()));
        for (at, c) in name.char_indices() {
            let mut upper = name.to_owned();
            upper.replace_range(at..=at, &c.to_uppercase().to_string());
            names.push(upper);
            let mut doubled = name.to_owned();
            doubled.insert(at, c);
            names.push(doubled);
        }
        names.extend(
            twins
                .iter()
                .filter(|(c, _)| name.contains(*c))
                .map(|(c, twin)| name.replace(*c, &twin.to_string())),
        );
        names.extend(
            around.iter().flat_map(|x| [format!("{x}{name}"), format!("{name}{x}"), format!("{x}{name}{x}")]),
        );
        names.extend(["functions.", "core:", "kv/", "../", "tool:"].map(|before| format!("{before}{name}")));
        names.extend([" ; shell", "()", "{}", "\nshell", "*"].map(|after| format!("{name}{after}")));
        names.extend((0..70).map(|n| format!("{name}{n}")));
    }
    for name in others {
        names.extend([name.to_owned(), name.to_uppercase(), format!(" {name}"), format!("{name} ")]);
    }
    names.extend(["", "*", ".", "null", "true"].map(str::to_owned));
    names.retain(|name| !own.contains(&name.as_str()));
    names.sort();
    names.dedup();
    names
}

#[tokio::test]
async fn no_forged_name_of_five_hundred_runs_anything() {
    let names = forged();
    assert!(names.len() >= 500, "{}", names.len());
    let world = Arc::new(World::default());
    let model_scripts: Vec<Reply> = names
        .chunks(16)
        .map(|some| {
            let calls: Vec<(&str, &str)> = some.iter().map(|n| (n.as_str(), TASK)).collect();
            call(&calls)
        })
        .chain([say("done")])
        .collect();
    let mut main = definition("main");
    (main.limits.max_turns, main.limits.max_tool_calls) = (100, 10_000);
    main.limits.max_tokens_per_invocation = 10_000_000;
    let model = Arc::new(Plays::new(&[("main", &model_scripts), ("sub", &[say("a part")])]));
    let sub = looping(definition("sub"), &model, []);
    let tools = ["kv_get", "files_read"].map(|n| Fake::says(n).in_world(&world).registered());
    let agent = looping(main, &model, tools.into_iter().chain([as_tool(&sub)]));
    let seen = Case::new(agent, &model).run().await;
    assert_eq!(seen.response.content, "done");
    assert_eq!(seen.statuses(), vec![ToolStatus::Refused; names.len()]);
    assert_eq!((world.runs().len(), model.asked_by("sub"), seen.spend.invocations), (0, 0, 1));
}
