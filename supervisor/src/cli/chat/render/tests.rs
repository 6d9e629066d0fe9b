//! Golden renderings of conversations.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

fn event(depth: u32, kind: &str, data: Value) -> Event {
    of_turn("t", depth, kind, data)
}

fn of_turn(turn: &str, depth: u32, kind: &str, data: Value) -> Event {
    let agent = json!({"id": "a", "invocation": format!("i-{depth}"), "depth": depth});
    let event = json!({
        "seq": 1, "time": "2026-01-01T00:00:00Z", "session": "s", "turn": turn, "agent": agent, "kind": kind,
        "data": data,
    });
    serde_json::from_value(event).expect("an event")
}

fn preview(text: &str) -> Value {
    json!({"text": text, "bytes": text.len()})
}

fn started(text: &str) -> Event {
    event(0, "interaction.turn.started", json!({"input": preview(text)}))
}

fn begins(depth: u32) -> Event {
    event(depth, "interaction.item.started", json!({"item": {"id": "m", "type": "agent_message"}}))
}

fn delta(depth: u32, text: &str) -> Event {
    event(depth, "interaction.item.updated", json!({"id": "m", "item": "agent_message", "delta": text}))
}

fn reasons(text: &str) -> Event {
    event(0, "interaction.item.updated", json!({"id": "r", "item": "reasoning", "delta": text}))
}

fn message(depth: u32, text: &str, bytes: usize) -> Event {
    let output = json!({"text": text, "bytes": bytes, "truncated": bytes > text.len()});
    let item = json!({"id": "m", "type": "agent_message", "output": output});
    event(depth, "interaction.item.completed", json!({"item": item, "outcome": "ok", "elapsed_ms": 1}))
}

fn completed() -> Event {
    event(0, "interaction.turn.completed", json!({"status": "success", "spend": {}}))
}

fn skipped() -> Event {
    event(0, "interaction.stream.skipped", Value::Null)
}

/// The pieces as one text: `|` for an end, `[…]` for a line, `<…>` for what is to be fetched. Gives what goes on then,
/// a second and a half later.
fn check(events: &[Event], expected: &str) -> Vec<String> {
    let now = Instant::now();
    let mut renderer = Renderer::default();
    renderer.expect("mine");
    let pieces = events.iter().flat_map(|event| renderer.take(event, now));
    let shown: String = pieces
        .map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::End => "|".into(),
            Piece::Line(_, text) => format!("[{text}]"),
            Piece::Fetch(Fetch::Answer(turn)) => format!("<{turn}>"),
            Piece::Fetch(Fetch::Change(call, _)) => format!("<{call}>"),
            Piece::Fetch(Fetch::Item(id, shown)) => format!("<{id} after {shown}>"),
        })
        .collect();
    assert_eq!(shown, expected);
    renderer.live(now + Duration::from_millis(1500), 500)
}

const SPENT: &str = "[(0 ms, 0 tokens)]";

#[test]
fn text_streams_and_is_shown_once() {
    let events = [started("mine"), delta(0, "he"), delta(0, "llo"), message(0, "hello", 5), completed()];
    check(&events, &format!("hello||{SPENT}"));
}

#[test]
fn what_did_not_stream_is_shown_when_it_is_complete() {
    check(&[started("mine"), message(0, "hello", 5), completed()], &format!("hello||{SPENT}"));
    check(&[delta(0, "he"), message(0, "hello", 5)], "hello|");
    check(&[delta(0, "other"), message(0, "hello", 5)], "other|hello|");
}

#[test]
fn an_answer_that_the_events_do_not_hold_is_fetched() {
    check(&[started("mine"), completed()], &format!("|<t>{SPENT}"));
    check(&[started("mine"), message(0, "hel", 5), completed()], &format!("<m after >||{SPENT}"));
    check(&[delta(0, "hello"), message(0, "hel", 5), completed()], &format!("hello||{SPENT}"));
    let handle = json!({"text": "hel", "bytes": 5, "truncated": true, "handle": "h-1"});
    let item = json!({"id": "m", "type": "agent_message", "output": handle});
    let data = json!({"item": item, "outcome": "ok", "elapsed_ms": 1});
    check(&[delta(0, "he"), event(0, "interaction.item.completed", data)], "he<h-1 after he>|");
}

#[test]
fn what_was_too_fast_comes_whole_at_its_end_and_never_garbled() {
    let begun = [started("mine"), begins(0), delta(0, "he"), skipped()];
    let live = check(&begun, "he");
    assert!(live.iter().any(|line| line.contains("comes whole")), "{live:?}");
    let whole = |last: Event| [begun.as_slice(), &[delta(0, "o"), last]].concat();
    check(&whole(message(0, "hello", 5)), "hello|");
    check(&whole(message(0, "hel", 5)), "he<m after he>|");
    // Even where as many bytes came as the message has.
    let mut odd = begun.to_vec();
    odd.extend([delta(0, "xyz"), message(0, "hel", 5)]);
    check(&odd, "he<m after he>|");
    // The next message streams again.
    let mut next = whole(message(0, "hello", 5)).to_vec();
    next.extend([begins(0), delta(0, "bye")]);
    check(&next, "hello|bye");
}

#[test]
fn the_messages_of_others_are_shown_and_my_own_are_not() {
    let yours = [started("mine"), completed(), started("mine"), completed()];
    check(&yours, &format!("|<t>{SPENT}|[› mine]|<t>{SPENT}"));
}

#[test]
fn a_long_message_of_my_own_is_not_shown_either() {
    let long = "x".repeat(5000);
    let mut renderer = Renderer::default();
    renderer.expect(&long);
    let began = json!({"input": Preview::kept(&long, "t")});
    assert_eq!(renderer.take(&event(0, "interaction.turn.started", began), Instant::now()), []);
}

#[test]
fn a_turn_that_goes_on_after_a_restart_is_not_told_anew() {
    check(&[started("yours"), started("yours")], "|[› yours]");
}

#[test]
fn a_message_that_the_running_turn_takes_in_is_shown_once_and_ends_nothing() {
    let steered = json!({"input": preview("hurry"), "from": "t-2"});
    let steered = event(0, "interaction.turn.steered", steered);
    let began = of_turn("t-2", 0, "interaction.turn.started", json!({"input": preview("hurry")}));
    let ended = of_turn("t-2", 0, "interaction.turn.completed", json!({"status": "success", "spend": {}}));
    let call = json!({"item": {"id": "e", "type": "tool_call", "name": "slow"}});
    let call = event(0, "interaction.item.started", call);
    let told = "|[› hurry (taken in by the running turn)]";
    for order in [[&steered, &began, &ended], [&began, &steered, &ended], [&began, &ended, &steered]] {
        let mut events = vec![started("mine"), call.clone()];
        events.extend(order.into_iter().cloned());
        let live = check(&events, told);
        assert_eq!(live, ["slow … 1.5 s"], "the tool still runs");
    }
}

#[test]
fn the_words_of_sub_agents_are_not_the_answer() {
    check(&[delta(1, "draft"), message(1, "draft", 5)], "");
    let reset = event(1, "interaction.stream.reset", json!({"id": "x", "reason": "broken"}));
    check(&[delta(0, "he"), reset, message(0, "hello", 5)], "hello|");
}

#[test]
fn reasoning_is_live_then_stands_in_short_before_the_message() {
    let live = check(&[started("mine"), begins(0), reasons("who\ncan?")], "");
    assert_eq!(live, ["a is thinking … 1.5 s: who can?"]);
    let said = [begins(0), reasons("who\ncan?"), delta(0, "hi"), message(0, "hi", 2)];
    check(&said, "|[thought: who can?]hi|");
    check(
        &[begins(0), reasons(&"x".repeat(900)), message(0, "hi", 2)],
        &format!("|[thought: {}…]hi|", "x".repeat(159)),
    );
}

#[test]
fn a_call_ends_with_a_line_and_a_failure_with_its_reason() {
    let item = |output: &str| {
        json!({"id": "e", "type": "tool_call", "name": "files_read", "input": {"text": "{}", "bytes": 2},
               "output": {"text": output, "bytes": output.len()}})
    };
    let began = event(1, "interaction.item.started", json!({"item": item("")}));
    let done = |outcome: &str| {
        let data = json!({"item": item("no \u{1b}[2J such file"), "outcome": outcome, "elapsed_ms": 1500});
        event(1, "interaction.item.completed", data)
    };
    check(&[began.clone(), done("ok")], "[  ✓ files_read {} 1.5 s]");
    check(&[began, done("error")], "[  ✗ files_read {} 1.5 s: failed: no [2J such file]");
    check(&[done("refused")], "[  ✗ files_read {} 1.5 s: refused: no [2J such file]");
}

#[test]
fn a_plan_is_live_in_place_and_stands_once_at_its_end() {
    let item = |plan: &str| json!({"id": "p", "type": "todo_list", "output": preview(plan)});
    let plan = |one: &str, two: &str| {
        format!("[{{\"step\":\"one\",\"status\":\"{one}\"}},{{\"step\":\"two\",\"status\":\"{two}\"}}]")
    };
    let began = event(0, "interaction.item.started", json!({"item": item(&plan("in_progress", "pending"))}));
    let update = json!({"id": "p", "item": "todo_list", "delta": plan("done", "in_progress")});
    let update = event(0, "interaction.item.updated", update);
    assert_eq!(check(std::slice::from_ref(&began), ""), ["plan: 0 of 2 done", "  ▸ one", "  ○ two"]);
    let live = check(&[began.clone(), update.clone()], "");
    assert_eq!(live, ["plan: 1 of 2 done", "  ✓ one", "  ▸ two"]);
    let ended = json!({"item": item(&plan("done", "done")), "outcome": "ok", "elapsed_ms": 9});
    let ended = event(0, "interaction.item.completed", ended);
    let live = check(&[began, update, ended], "|[plan: 2 of 2 done][  ✓ one][  ✓ two]");
    assert_eq!(live, [""; 0]);
}

#[test]
fn a_call_that_shows_a_plan_is_not_told_unless_it_fails() {
    let item = json!({"id": "e", "type": "tool_call", "name": "update_plan"});
    let began = event(0, "interaction.item.started", json!({"item": item}));
    let ended = |outcome: &str| {
        let data = json!({"item": item, "outcome": outcome, "elapsed_ms": 1500});
        event(0, "interaction.item.completed", data)
    };
    assert_eq!(check(std::slice::from_ref(&began), ""), [""; 0]);
    check(&[began.clone(), ended("ok")], "");
    check(&[began, ended("error")], "[✗ update_plan 1.5 s: failed]");
}

#[test]
fn the_plan_of_a_sub_agent_is_its_own() {
    let item = json!({"id": "p", "type": "todo_list", "output": preview("[]")});
    assert_eq!(check(&[event(1, "interaction.item.started", json!({"item": item}))], ""), [""; 0]);
}

#[test]
fn limits_are_told_with_what_is_left_and_when_they_begin_anew() {
    let day = json!({"limit": "limits.day.max_tokens", "scope": "day", "used": 80, "allowed": 100,
                     "resets": "2026-03-02T00:00:00Z"});
    let limit = "limit `limits.day.max_tokens`";
    check(
        &[event(0, "interaction.budget.warning", day.clone())],
        &format!(
            "[80 % of the day's {limit} is used: 80 of 100 tokens; it begins anew at 2026-03-02 00:00 UTC]"
        ),
    );
    check(
        &[event(1, "interaction.budget.exceeded", day)],
        &format!(
            "[  the day's {limit} is used up: 80 of 100 tokens; it begins anew at 2026-03-02 00:00 UTC]"
        ),
    );
}

#[test]
fn what_a_call_would_change_fits_on_a_screen_and_a_terminal_obeys_nothing_of_it() {
    let shown = |text: &str, failed| {
        let pieces = changes(&CallPreview { text: text.into(), failed, input: None }, 0);
        let lines = pieces.into_iter().map(|piece| match piece {
            Piece::Line(style, line) => (style, line),
            other => panic!("{other:?}"),
        });
        lines.collect::<Vec<_>>()
    };
    let line = |style, text: &str| (style, format!("  {text}"));
    assert_eq!(
        shown("@@ -1 +1 @@\n-a\u{1b}[2K\n+b\u{202e}\n c\n", false),
        [
            line(Style::Dim, "@@ -1 +1 @@"),
            line(Style::Bad, "-a\\u001b[2K"),
            line(Style::Good, "+b\\u202e"),
            line(Style::Dim, " c")
        ]
    );
    let long = shown(&"+x\n".repeat(100), false);
    assert_eq!((long.len(), &long[CHANGED]), (CHANGED + 1, &line(Style::Dim, "… and more")));
    let failed = shown("there is no `a`", true);
    assert_eq!(failed, [line(Style::Dim, "what it would change cannot be shown: there is no `a`")]);
    let data = json!({"id": "e-00000000000000000000000000000001", "tool": "w", "input": preview("{}"), "need": "n",
                      "expires": "2026-01-01T00:00:00Z"});
    let event = event(0, "interaction.approval.requested", data);
    let pieces = Renderer::default().take(&event, Instant::now());
    assert!(matches!(pieces.as_slice(), [Piece::Line(..), Piece::Fetch(Fetch::Change(_, 0))]), "{pieces:?}");
}

#[test]
fn a_turn_that_fails_says_why_and_what_to_do() {
    let data = json!({"status": "error", "error": "no key", "class": "auth", "spend": {}});
    let failed = event(0, "interaction.turn.completed", data);
    check(&[started("mine"), failed], &format!("|[no key][help: check the provider's key]{SPENT}"));
}

#[test]
fn an_answer_that_is_void_begins_anew() {
    let reset = || event(0, "interaction.stream.reset", json!({"id": "m", "reason": "broken"}));
    check(
        &[delta(0, "he"), reset(), delta(0, "hi"), message(0, "hi", 2)],
        "he|[✗ the answer above is void, it begins anew: broken]hi|",
    );
    check(&[reset(), delta(0, "hi")], "|[the model is asked again: broken]hi");
    // What was reasoned is void with it, and told once.
    let reasoning = event(0, "interaction.stream.reset", json!({"id": "r", "reason": "broken"}));
    let again = [begins(0), reasons("hm"), delta(0, "he"), reset(), reasoning, reasons("ah"), delta(0, "hi")];
    let told = "|[thought: hm]he|[✗ the answer above is void, it begins anew: broken]|[thought: ah]hi";
    check(&again, told);
}
