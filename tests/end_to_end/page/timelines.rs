//! The timeline of a turn: while it runs and afterwards, as bars and as a flame, with everything that a row knows.

use std::fs;

use serde_json::{Value, json};

use super::{
    Scene,
    browser::{DESK, PHONE, Window},
    stage::{Gate, staged},
};
use crate::harness::until;

/// What the rows say, one a line.
const ROWS: &str = "return [...document.querySelectorAll('.rows .text')].map(e => e.textContent).join('\\n')";

fn lives(window: Window) {
    let gate = Gate::default();
    let Some(scene) = Scene::open(window, staged(&gate), |_| {}) else { return };
    let browser = &scene.browser;
    let task = json!({"task": "WAIT\nSAY a leaf falls"});
    scene.send_lines(&[&format!("CALL agent_haiku {task}"), "SAY done"]);
    browser.shows(".work .name", "haiku");
    let timeline = format!("{}/t/{}", scene.conversation(), scene.turn());
    scene.view(&timeline);
    // While it runs: what runs has an open bar, and a sign.
    browser.shows(".page .badge", "running");
    browser.until("document.querySelectorAll('.rows .bar.open').length >= 3");
    browser.shows(".rows .text", "haiku");
    gate.open();
    browser.shows(".page .badge", "done");
    browser.until("document.querySelectorAll('.rows .bar.open').length === 0");
    let live = browser.eval(ROWS);
    assert_eq!(
        live, "orchestrator\nlocal/test\nagent_haiku\nhaiku\nlocal/test\nlocal/test",
        "in the order in which they came"
    );
    // Afterwards, from the journal, it is the same.
    scene.visit(&timeline);
    browser.until("document.querySelectorAll('.rows .bar-row').length === 6");
    assert_eq!(browser.eval(ROWS), live);
    browser.shows(
        ".page header",
        "180 tokens (150 in, 0 of them cached, 30 out) · $0.00060 · 3 steps · 1 call · 2 runs",
    );
    let nested = browser.eval("return [...document.querySelectorAll('.rows li')].map(e => e.style.getPropertyValue('--depth')).join()");
    assert_eq!(nested, "0,1,1,2,3,1");
    // Each row is a link to itself.
    let links = browser.eval("return [...document.querySelectorAll('.rows a')].map(a => a.hash)");
    let links: Vec<String> = serde_json::from_value(links).expect("addresses");
    for (at, link) in links.iter().enumerate() {
        scene.visit(link);
        browser.until(&format!("document.querySelectorAll('.rows a')[{at}]?.ariaCurrent === 'true'"));
        browser.until("document.querySelector('.inspector .facts')");
    }
    scene.view(&links[3]);
    browser.shows(".inspector .meters", "steps");
    browser.shows(".inspector .io-text", "a leaf falls");
    browser.click(".inspector .row > button");
    browser.until("document.querySelector('.inspector .why p')");
    // The flame has the same, each with a name that a screen reader says.
    browser.click("[data-look=flame]");
    browser.until("document.querySelectorAll('.flame-bar').length === 6");
    browser.until("document.querySelectorAll('.flame-bar[aria-current]').length === 1");
    let said = browser.eval("return [...document.querySelectorAll('.flame-bar')].find(e => e.textContent.includes('haiku')).textContent");
    assert!(
        said.as_str()
            .is_some_and(|said| said.contains("agent haiku, ") || said.contains("tool agent_haiku, ")),
        "{said}"
    );
    browser.eval("document.querySelector('.flame-bar').click()");
    browser.until("location.hash.includes('/n/')");
}

#[test]
fn a_timeline_is_there_while_the_turn_runs_and_the_same_from_the_journal_on_a_desk() {
    lives(DESK);
}

#[test]
fn a_timeline_is_there_while_the_turn_runs_and_the_same_from_the_journal_on_a_phone() {
    lives(PHONE);
}

#[test]
fn an_attempt_that_failed_is_a_row_and_the_whole_is_kept_as_json() {
    let Some(scene) = Scene::open(DESK, staged(&Gate::default()), |_| {}) else { return };
    let browser = &scene.browser;
    let folder = tempfile::tempdir().expect("a temporary folder");
    browser
        .devtools("Page.setDownloadBehavior", &json!({"behavior": "allow", "downloadPath": folder.path()}));
    scene.send_lines(&["FAIL", "SAY well again"]);
    browser.shows(".turn .prose", "well again");
    scene.ended();
    let turn = scene.turn();
    scene.view(&format!("{}/t/{turn}", scene.conversation()));
    browser.shows(".page header", "1 repeated attempt");
    browser.shows(".rows .text", "local/test, attempt 2");
    browser.until("document.querySelectorAll('.rows .bar.model.failed').length === 1");
    browser.eval(
        "[...document.querySelectorAll('.rows a')].find(a => a.textContent.includes('attempt 2')).click()",
    );
    browser.shows(".inspector .facts", "2 of step 1");
    browser.click(".page .row > .choice + button");
    let file = folder.path().join(format!("turn-{turn}.json"));
    let kept = || serde_json::from_str::<Value>(&fs::read_to_string(&file).ok()?).ok();
    let kept = until("the browser kept it", kept).expect("JSON");
    let shown = scene.daemon.client().ask("trace.show", json!({"id": turn})).expect("a trace");
    assert_eq!(numbers(&kept), numbers(&shown[0]), "nothing is left out");
}

#[test]
fn a_limit_that_ends_a_run_is_said_in_the_conversation_and_a_row_of_the_timeline() {
    let few =
        "---\ndescription: Calls once.\nlimits: {max_turns: 1}\nuses_tools: [careful]\n---\nYou call.\n";
    let prepare = |daemon: &crate::harness::Daemon| daemon.write("extensions/brief.md", few);
    let Some(scene) = Scene::open(DESK, staged(&Gate::default()), prepare) else { return };
    let browser = &scene.browser;
    scene.send_lines(&["@brief CALL careful_echo {}", "CALL careful_echo {}", "SAY done"]);
    scene.ended();
    browser.until("document.querySelector('.turn .remark.wait')");
    scene.view(&format!("{}/t/{}", scene.conversation(), scene.turn()));
    browser.until("document.querySelector('.rows .letter.note')");
    browser.eval("document.querySelector('.rows .letter.note').closest('a').click()");
    browser.shows(".inspector .facts", "says");
}

/// The same with all numbers alike: a browser writes `0` for `0.0`.
fn numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(list) => list.iter().map(numbers).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), numbers(value))).collect(),
        other => other.clone(),
    }
}
