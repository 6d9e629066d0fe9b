//! Scripts and what they play.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use drupe_agent::AgentCard;
use drupe_extension_api::{AgentId, Message, ToolStatus};

use super::*;

fn user(content: &str) -> Message {
    Message::User { content: content.to_owned() }
}

fn answered(n: usize) -> Vec<Message> {
    let one = Message::Assistant {
        content: String::new(),
        reasoning: None,
        tool_calls: Vec::new(),
        provider_items: None,
    };
    std::iter::once(user("go")).chain(std::iter::repeat_n(one, n)).collect()
}

fn request(agent: &str, messages: Vec<Message>) -> Arc<ModelRequest> {
    Arc::new(ModelRequest {
        agent: Arc::new(AgentCard {
            id: AgentId::new(agent).unwrap(),
            name: String::new(),
            description: String::new(),
            offline: Vec::new(),
            root: true,
        }),
        system: "".into(),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: Arc::default(),
        deferred: Arc::default(),
        parameters: Arc::default(),
        sparing: false,
        max_output_tokens: 100,
        room: Default::default(),
        dispatch: Default::default(),
        output: None,
        timeout_ms: 1_000,
        max_retries: 0,
    })
}

fn source(yaml: &str) -> ScriptedSource {
    let profile = ModelProfile {
        name: "scripted/t".to_owned(),
        context_window: 1,
        max_output_tokens: 1,
        price: None,
        tools: true,
        images: false,
    };
    ScriptedSource::new(Arc::new(Script::parse("t.yaml", yaml).unwrap()), profile)
}

async fn ask(source: &ScriptedSource, agent: &str, messages: Vec<Message>) -> String {
    let items: Vec<_> = source.attempt(request(agent, messages), Arc::default()).collect().await;
    let words = items.into_iter().map(|item| match item {
        Ok(ModelEvent::Text(text)) => text,
        Ok(ModelEvent::Reasoning(text)) => format!("({text})"),
        Ok(ModelEvent::ToolCall(call)) => format!("{}:{}{}", call.call_id, call.name, call.arguments),
        Ok(ModelEvent::Done { usage, stop, .. }) => {
            format!("{}/{}", stop.name(), usage.map_or(0, |u| u.total()))
        }
        Ok(other) => format!("{other:?}"),
        Err(broken) => {
            format!("{:?}/{}/{}", broken.fault.class, broken.fault.retriable, broken.fault.message)
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn entries_answer_in_order_for_each_agent() {
    let script = source(
        "- {expect: {agent: b}, text: for b}\n- {text: one}\n- {expect: {agent: a}, text: two}\n- {text: always, repeat: true}\n",
    );
    for (agent, answer) in [
        ("a", "one end/0"),
        ("b", "for b end/0"),
        ("a", "two end/0"),
        ("a", "always end/0"),
        ("b", "always end/0"),
    ] {
        assert_eq!(ask(&script, agent, vec![user("go")]).await, answer);
    }
}

#[tokio::test]
async fn an_answer_has_all_that_the_entry_says() {
    let script = source(concat!(
        "- reasoning: hm\n  text: süßes\n  chunk: 2\n",
        "  tool_calls: [{name: f, arguments: {a: 1}}, {name: g}, {name: h, arguments: '{broken'}]\n",
        "  usage: {input_tokens: 3, output_tokens: 4}\n",
        "- {text: cut, tool_calls: [{name: f}], stop: length}\n",
    ));
    let first = "(hm) sü ße s scripted_1_0:f{\"a\":1} scripted_1_1:g{} scripted_1_2:h{broken tool_calls/7";
    assert_eq!(ask(&script, "a", vec![user("go")]).await, first);
    assert_eq!(ask(&script, "a", vec![user("go")]).await, "cut length/0");
}

#[tokio::test]
async fn expectations_look_at_task_result_and_tools() {
    let script = source(concat!(
        "- {expect: {contains: red}, text: r, repeat: true}\n",
        "- {expect: {tool_result: '^4.$'}, text: n, repeat: true}\n",
        "- {expect: {tools: [kv_get]}, text: t, repeat: true}\n",
    ));
    let result = |content: &str| Message::Tool {
        call_id: "c".to_owned(),
        name: "f".to_owned(),
        status: ToolStatus::Ok,
        content: content.to_owned(),
        images: Vec::new(),
    };
    assert_eq!(ask(&script, "a", vec![user("a red one")]).await, "r end/0");
    assert_eq!(ask(&script, "a", vec![user("x"), result("42")]).await, "n end/0");
    let said = ask(&script, "a", vec![user("x"), result("52")]).await;
    for part in [
        "Model/false",
        "step 1 of agent `a` on \"x\" after \"52\"",
        "1. a task with \"red\"",
        "3. the tools [\"kv_get\"]",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test]
async fn steps_answer_from_the_transcript_alone() {
    let yaml = "- {step: 2, text: second}\n- {step: 1, text: first}\n";
    let script = source(yaml);
    for (answers, text) in [(0, "first end/0"), (1, "second end/0"), (0, "first end/0")] {
        assert_eq!(ask(&script, "a", answered(answers)).await, text);
        assert_eq!(ask(&source(yaml), "a", answered(answers)).await, text);
    }
    assert!(ask(&script, "a", answered(2)).await.contains("no entry"));
}

#[tokio::test(start_paused = true)]
async fn faults_and_delays_are_played() {
    let script = source(concat!(
        "- {text: abcdef, chunk: 2, fault: {class: network, message: gone, retriable: true, after_chunks: 2}}\n",
        "- {text: late, delay_ms: 5000}\n",
    ));
    assert_eq!(ask(&script, "a", vec![user("go")]).await, "ab cd Network/true/`scripted/t`: gone");
    let begun = tokio::time::Instant::now();
    assert_eq!(ask(&script, "a", vec![user("go")]).await, "late end/0");
    assert!(begun.elapsed() >= Duration::from_secs(5));
}

#[test]
fn a_wrong_script_is_refused_with_its_place() {
    for (yaml, part) in [
        ("- text: a\n- {txt: b}\n", "line 2"),
        ("- expect: {agnt: a}\n", "agnt"),
        ("- expect: {tool_result: '('}\n", "regex"),
        ("- {fault: {class: network, message: m}, tool_calls: [{name: f}]}\n", "entry 1"),
        ("- {chunk: 0}\n", "from 1"),
        ("text: a\n", "t.yaml"),
    ] {
        let error = Script::parse("t.yaml", yaml).err().unwrap().to_string();
        assert!(error.contains(part), "{yaml}: {error}");
    }
}

#[tokio::test]
async fn an_answer_far_past_its_bound_is_none() {
    // The bound is 100 tokens.
    let most = 100 * 16 + (64 << 10);
    for (key, value) in [("text", "x"), ("reasoning", "x"), ("tool_calls", "[{name: t, arguments: x}]")] {
        for (bytes, within) in [(most, true), (most + 1, false)] {
            let bytes = if key == "tool_calls" { bytes - 1 } else { bytes };
            let said = source(&format!("- {key}: {}", value.replace('x', &"x".repeat(bytes))));
            let said = ask(&said, "main", vec![user("go")]).await;
            let told = format!("past its bound of 100 tokens: it has {} bytes", most + 1);
            assert_eq!(said.contains(&told), !within, "{key}: {}", said.len());
        }
    }
}
