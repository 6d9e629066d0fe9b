//! What is looked up: conversations, agents, extensions, approvals, usage, limits, messages that were given up, and why.

use serde_json::{Value, json};

use super::{
    Scene, TAB,
    browser::{DESK, PHONE, Window},
    scene,
    stage::{Gate, staged},
};
use crate::harness::{Daemon, until};

fn sessions(window: Window) {
    let Some(scene) = scene(window) else { return };
    let browser = &scene.browser;
    for text in ["about apples", "about pears"] {
        scene.view("#/new");
        browser.until("document.querySelector('.welcome')");
        scene.send(text);
        scene.ended();
        browser.until(&format!("document.getElementById('sessions').textContent.includes('{text}')"));
    }
    let address = scene.conversation();
    browser.press(&format!("{}", super::ESCAPE));
    browser.eval("document.activeElement.blur()");
    browser.press("s");
    browser.until("document.activeElement.type === 'search'");
    browser.press("PEARS about");
    browser.until("document.querySelectorAll('#sessions li a').length === 1");
    browser.until("document.querySelector('#sessions [role=status]').textContent === '1 conversation'");
    assert_eq!(browser.eval("return document.querySelector('#sessions li a').hash"), json!(address));
    browser.press(&TAB.to_string());
    browser.until("document.activeElement.matches('#sessions a')");
    browser.eval("const s = document.querySelector('#sessions input'); s.value = 'plums'; s.dispatchEvent(new Event('input'))");
    browser.until("document.querySelector('#sessions ol').textContent === 'Nothing found'");
}

#[test]
fn conversations_are_searched_by_keyboard_on_a_desk() {
    sessions(DESK);
}

#[test]
fn conversations_are_searched_by_keyboard_on_a_phone() {
    sessions(PHONE);
}

#[test]
fn an_agent_shows_what_it_has_what_it_has_not_and_why_and_a_template_that_works() {
    let asks = "---\ndescription: Keeps notes.\nuses_tools: [kv]\n---\nYou keep notes.\n";
    let Some(scene) = Scene::open(PHONE, staged(&Gate::default()), |d| d.write("extensions/keeper.md", asks))
    else {
        return;
    };
    let browser = &scene.browser;
    scene.view("#/agents");
    browser.shows(".card", "@keeper");
    browser.click(".card[href='#/agents/keeper']");
    browser.shows("main h1", "keeper");
    let shown = scene.daemon.client().ask("agents.show", json!({"id": "keeper"})).expect("an agent");
    browser.until("document.querySelectorAll('main .block').length >= 4");
    let told = browser.eval("return document.querySelector('main').innerText");
    let told = told.as_str().expect("a text");
    let all = |list: &Value, key: Option<&str>| -> Vec<String> {
        let texts = list.as_array().into_iter().flatten();
        texts.filter_map(|one| key.map_or(one, |key| &one[key]).as_str().map(str::to_owned)).collect()
    };
    let (tools, left_out) = (all(&shown["tools"], None), all(&shown["excluded"], Some("tool")));
    assert!(!tools.is_empty() && !left_out.is_empty(), "{shown}");
    for said in tools.iter().chain(&left_out).chain(&all(&shown["excluded"], Some("reason"))) {
        assert!(told.contains(said.as_str()), "{said}\n{told}");
    }
    // What is to be copied is an agent.
    browser.until("document.querySelector('.code pre')");
    let template = browser.eval("return [...document.querySelectorAll('.code pre')].at(-1).textContent");
    let second = template.as_str().expect("a text").replace("id: keeper", "id: second");
    scene.daemon.write("extensions/second.md", &second);
    scene.daemon.until_extension("second", "active");
    scene.view("#/agents/second");
    browser.shows("main", "kv");
}

/// Has extensions wait for the operator, but for the one that every scene has.
fn asking(daemon: &Daemon) {
    let file = daemon.path().join("drupe.yaml");
    let settings = std::fs::read_to_string(file).expect("its settings");
    daemon.write("drupe.yaml", &(settings + "approvals: {preauthorized: [careful]}\n"));
    daemon.write(
        "extensions/reader/manifest.yaml",
        "id: reader\nname: Reader\ndescription: Reads.\nagent: {model: default, instructions: \"\", uses_agents: [haiku]}\n",
    );
}

#[test]
fn an_extension_says_its_state_and_why_waits_for_the_operator_and_is_turned_off_and_on() {
    let Some(scene) = Scene::open(DESK, staged(&Gate::default()), asking) else { return };
    let browser = &scene.browser;
    scene.view("#/extensions");
    browser.shows(".card:first-of-type .badge", "◆ waits for you");
    browser.shows("[data-glance] .waits", "1 for you");
    let first = browser.eval("return document.querySelector('.card').hash");
    assert_eq!(first, "#/extensions/reader", "what needs somebody stands first");
    scene.view("#/approvals");
    browser.shows(".question .needs", "calls of the agent `haiku`");
    let link =
        browser.eval("return [...document.links].find(a => a.textContent === 'Link to this question').hash");
    scene.view(link.as_str().expect("an address"));
    browser.until("document.activeElement.id.startsWith('approval-')");
    scene.view("#/extensions/reader");
    browser.click(".question .primary");
    browser.shows(".page header .badge", "✓ active");
    browser.until(
        "[...document.querySelectorAll('.lines .badge')].some(b => b.textContent.includes('waits for you'))",
    );
    browser.click(".page .row > button:first-child");
    browser.shows(".page header .badge", "– off");
    assert_eq!(scene.daemon.extension("reader").0, "disabled");
    browser.click(".page .row > button:nth-child(2)");
    browser.until("document.querySelector('.why .first')");
    browser.click(".page .row > button:first-child");
    browser.shows(".page header .badge", "✓ active");
}

fn used(window: Window) {
    let Some(scene) = Scene::open(window, staged(&Gate::default()), |_| {}) else { return };
    let browser = &scene.browser;
    scene.send_lines(&[&format!("CALL agent_haiku {}", json!({"task": "SAY a leaf"})), "SAY done"]);
    scene.ended();
    scene.view("#/usage");
    browser.shows(".sums", "180");
    browser.shows(".sums", "$0.00060");
    browser.until("document.querySelectorAll('.plot rect.cost, .plot rect.input').length === 2");
    browser.until("(p => p.viewBox.baseVal.width === Math.round(p.getBoundingClientRect().width))(document.querySelector('.plot'))");
    // What a plot shows is there as text as well.
    browser.until("[...document.querySelectorAll('.plot title')].some(t => t.textContent.includes('180'))");
    for (title, row) in [("By agent", "haiku"), ("By model", "local/test"), ("By conversation", "page-")] {
        browser.until(&format!(
            "[...document.querySelectorAll('.block')].find(b => b.querySelector('h2').textContent === '{title}')?.innerText.includes('{row}')"
        ));
    }
    let rows = "[...document.querySelectorAll('.shares tbody tr')].length";
    assert_eq!(
        browser.eval(&format!("return {rows}")),
        5,
        "2 agents, a model, a conversation, and a day in the table"
    );
    browser.click(".choice button:first-child");
    browser.until("location.hash === '#/usage/7' && document.querySelectorAll('.plot g').length === 14");
    // A limit says how much is used of it and leads to why.
    browser.shows(".meters", "180 of");
    browser.click(".meters a[href*='max_tokens']");
    browser.until("location.hash.startsWith('#/why/limits.') && document.querySelector('.why .first')");
}

#[test]
fn usage_is_drawn_by_day_agent_model_and_conversation_with_limits_on_a_desk() {
    used(DESK);
}

#[test]
fn usage_is_drawn_by_day_agent_model_and_conversation_with_limits_on_a_phone() {
    used(PHONE);
}

#[test]
fn why_is_answered_for_a_turn_a_conversation_a_run_a_call_and_an_extension() {
    let Some(scene) = Scene::open(DESK, staged(&Gate::default()), |_| {}) else { return };
    let browser = &scene.browser;
    scene.send_lines(&["CALL careful_echo {}", "SAY done"]);
    scene.ended();
    let (conversation, turn) = (scene.conversation(), scene.turn());
    let trace = scene.daemon.client().ask("trace.show", json!({"id": turn})).expect("a trace");
    let run = &trace[0]["nodes"][0];
    let call =
        run["nodes"].as_array().into_iter().flatten().find(|node| node["kind"] == "tool").expect("a call");
    let session = conversation.trim_start_matches("#/s/");
    for id in [
        turn.as_str(),
        session,
        run["id"].as_str().unwrap_or_default(),
        call["id"].as_str().unwrap_or_default(),
        "careful",
    ] {
        scene.view("#/why");
        browser.until("document.querySelector('.ask input')?.value === ''");
        browser.write(".ask input", id);
        browser.click(".ask .primary");
        browser.until(&format!("location.hash === '#/why/' + encodeURIComponent('{id}')"));
        browser.until("document.querySelector('.why .first')");
        browser.click(".why summary");
        browser.until("document.querySelector('.why .cited li')?.checkVisibility()");
    }
    scene.view("#/why/nothing-has-this-id");
    browser.until("document.querySelector('.notice.bad')");
}

#[test]
fn a_message_that_was_given_up_says_why_and_is_forgotten() {
    let follower = |topic: &str, more: &str| {
        format!(
            "id: clerk\nname: clerk\ndescription: Follows.\nsubscribe:\n  - {{topic: {topic}, task: Look.}}\n{more}\
             agent: {{model: default, instructions: You are clerk.}}\n"
        )
    };
    let prepare = |daemon: &Daemon| {
        daemon.plugin("press", "watcher", "config: {prefix: press}\n");
        daemon.write("extensions/clerk/manifest.yaml", &follower("press.note", "depends_on: [helper]\n"));
    };
    let Some(scene) = Scene::open(DESK, staged(&Gate::default()), prepare) else { return };
    let browser = &scene.browser;
    let note = json!({"topic": "note", "payload": {"n": "<b>1</b>"}});
    scene.send_lines(&[&format!("CALL press_emit {note}"), "SAY published"]);
    scene.ended();
    scene.daemon.write("extensions/clerk/manifest.yaml", &follower("press.else", ""));
    let dead = || scene.daemon.client().ask("bus.dead", json!({})).ok().filter(|list| list[0].is_object());
    until("it was given up", dead).expect("a letter");
    scene.view("#/daemon");
    browser.shows(".lines", "for agent:clerk");
    browser.click(".lines summary");
    browser.shows(".lines .io-text", "<b>1</b>");
    let why = browser.eval("return document.querySelector('.lines .row a').hash");
    browser.click(".lines .row button:last-child");
    browser.until("!document.querySelector('main').innerText.includes('given up')");
    assert_eq!(scene.daemon.client().ask("bus.dead", json!({})).expect("a list"), json!([]));
    scene.view(why.as_str().expect("an address"));
    browser.until("document.querySelector('.why .first, .notice.bad')");
}
