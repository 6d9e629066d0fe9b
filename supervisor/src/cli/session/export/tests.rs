//! Golden exports.

use super::*;

fn whole() -> (Value, Given) {
    let run = |id: &str, agent: &str, parent: Option<&str>, depth: u32| {
        json!({"id": id, "agent": agent, "parent": parent, "depth": depth, "status": "success", "usage": {},
               "tokens_used": 7, "turns_used": 1})
    };
    let call = json!([{"call_id": "c", "name": "agent_haiku", "arguments": "{\"task\":\"rust\"}"}]);
    let entry = |run: &str, agent: &str, rest: Value| {
        let mut entry = json!({"invocation": run, "agent": agent});
        for (key, value) in rest.as_object().expect("an object") {
            entry[key] = value.clone();
        }
        entry
    };
    let turn = json!({
        "session": "s", "turn": "t-1", "input": "a haiku", "status": "success", "content": "done",
        "spend": {"elapsed_ms": 1500}, "diagnostics": [], "trace": "c",
        "invocations": [run("i-0", "orchestrator", None, 0), run("i-1", "haiku", Some("i-0"), 1)],
        "transcript": [
            entry("i-0", "orchestrator", json!({"role": "user", "content": "a haiku"})),
            entry("i-0", "orchestrator", json!({
                "role": "assistant", "content": "", "reasoning": "who can?", "tool_calls": call})),
            entry("i-1", "haiku", json!({"role": "user", "content": "rust"})),
            entry("i-1", "haiku", json!({"role": "assistant", "content": "old crab"})),
            entry("i-0", "orchestrator", json!({
                "role": "tool", "call_id": "c", "name": "agent_haiku", "status": "ok", "content": "```\nold crab"})),
            entry("i-0", "orchestrator", json!({"role": "assistant", "content": "done"})),
        ],
    });
    let event = json!({"seq": 1, "time": "2026-03-01T10:00:00Z", "session": "s",
                       "kind": "interaction.turn.started", "data": {"input": {"text": "a haiku", "bytes": 7}}});
    let session = json!({
        "id": "s", "created": "2026-03-01T10:00:00Z", "updated": "2026-03-01T10:01:00Z", "agent": null,
        "title": "a haiku", "turn_count": 1, "last_seq": 9, "turns": [turn], "later": "kept",
    });
    (session, Given { events: vec![serde_json::from_value(event).expect("an event")] })
}

/// What is given to an export in place of a daemon's answers: a trace of every turn.
struct Given {
    events: Vec<Event>,
}

impl Source for Given {
    fn trace(&self, turn: &str) -> Result<Option<Value>, Failure> {
        Ok(Some(json!({
            "session": "s", "turn": turn, "accepted": "2026-03-01T10:00:00Z", "status": "success", "spend": {},
            "nodes": [], "later": "kept",
        })))
    }

    fn events(&self, take: &mut dyn FnMut(Event) -> Result<(), Failure>) -> Result<(), Failure> {
        self.events.iter().cloned().try_for_each(take)
    }
}

fn of(session: Value, given: &Given, shape: Shape) -> String {
    let mut text = Vec::new();
    write(&mut text, shape, session, given).unwrap_or_else(|failure| panic!("{failure}"));
    String::from_utf8(text).expect("a text")
}

fn rendered(shape: Shape) -> String {
    let (session, given) = whole();
    of(session, &given, shape)
}

#[test]
fn json_holds_everything_and_what_is_unknown_too() {
    let value: Value = serde_json::from_str(&rendered(Shape::Json)).expect("it is JSON");
    assert_eq!(value["session"], whole().0);
    assert_eq!((&value["traces"][0]["turn"], &value["traces"][0]["later"]), (&json!("t-1"), &json!("kept")));
    assert_eq!(value["events"][0]["kind"], "interaction.turn.started");
}

#[test]
fn what_comes_one_by_one_is_laid_out_as_the_whole_would_be() {
    for count in [0, 1, 2] {
        let (mut session, mut given) = whole();
        let turn = session["turns"][0].clone();
        session["turns"] = (0..count).map(|_| turn.clone()).collect();
        given.events = (0..count).map(|_| given.events[0].clone()).collect();
        let text = of(session, &given, Shape::Json);
        let value: Value = serde_json::from_str(&text).expect("it is JSON");
        let lists = [&value["traces"], &value["events"]].map(|list| list.as_array().map(Vec::len));
        assert_eq!(lists, [Some(count); 2]);
        // An object of the library has its keys in another order.
        let lines = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(|line| line.trim_end_matches(',').to_owned()).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&text), lines(&serde_json::to_string_pretty(&value).expect("it is JSON")), "{text}");
    }
}

#[test]
fn lines_are_objects_with_a_type_in_the_order_of_a_reader() {
    let text = rendered(Shape::Jsonl);
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let types: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap_or_default()).collect();
    assert_eq!(types, ["session", "turn", "trace", "event"]);
    assert_eq!((&lines[0]["later"], lines[0].get("turns")), (&json!("kept"), None));
    assert_eq!(lines[1]["transcript"].as_array().map(Vec::len), Some(6));
}

#[test]
fn a_text_for_people_tells_the_conversation_in_its_order() {
    let expected = "\
# Session s

From 2026-03-01T10:00:00Z to 2026-03-01T10:01:00Z.

## Turn 1

> a haiku

**@orchestrator reasons**

> who can?

**@orchestrator calls `agent_haiku`**

```json
{\"task\":\"rust\"}
```

**Task of @haiku**

> rust

**@haiku**

old crab

**Result of `agent_haiku`**

````
```
old crab
````

**@orchestrator**

done

*1.5 s, 0 tokens*

### Trace

```
turn t-1
success, 0 ms, 0 tokens, accepted 2026-03-01 10:00 UTC
```
";
    let text = rendered(Shape::Markdown);
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn people_read_who_has_the_conversation_and_what_older_turns_come_to() {
    let (mut session, given) = whole();
    session["handoff"] = json!({"agent": "poet", "since": "2026-03-01T10:00:30Z", "turns": 1, "tokens": 9});
    session["summary"] = json!("There is a boat.\nIt floats.");
    let text = of(session, &given, Shape::Markdown);
    assert!(text.contains(", answered by @poet.\n"), "{text}");
    assert!(text.contains("told this:\n\n> There is a boat.\n> It floats.\n"), "{text}");
}
