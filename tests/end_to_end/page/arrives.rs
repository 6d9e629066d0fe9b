//! Answers as they come: markdown that streams, sub-agents and plans at work, stopping, trying again, choosing who answers.

use serde_json::json;

use super::{
    Scene,
    browser::{DESK, PHONE, Window},
    scene,
    stage::{Gate, staged},
};

fn streams(window: Window) {
    let Some(scene) = Scene::open(window, staged(&Gate::default()), |_| {}) else { return };
    let browser = &scene.browser;
    scene.send(
        r"STALL ## A title\n\n- one\n- *two*\n\n| a | b |\n|---|---|\n| c | `d` |\n\n```rust\nlet x = 1;",
    );
    // What came is laid out while the rest is still to come.
    browser.shows(".turn .prose h4", "A title");
    browser.shows(".turn .prose li em", "two");
    browser.shows(".turn .prose td code", "d");
    browser.shows(".turn .prose figure.code pre", "let x = 1;");
    browser.shows(".turn .meta", "running");
    browser.shows("[data-glance] .runs", "1 running");
    browser.click(".composer [aria-label=Stop]");
    browser.shows(".turn .meta", "stopped");
    browser.shows(".turn .prose h4", "A title");
    browser.until("document.querySelector('.composer [aria-label=Stop]').hidden");
    // Trying again is the same message once more.
    browser.click(".turn .actions button:nth-of-type(2)");
    browser.until("document.querySelectorAll('.turn').length === 2");
    browser.until("document.querySelectorAll('.turn')[1].querySelector('.prose h4')");
    let asked = "return new Set([...document.querySelectorAll('.asked')].map(e => e.textContent)).size";
    assert_eq!(browser.eval(asked), 1, "it is the same message");
    browser.click(".turn:last-child .actions button");
    browser.until("document.querySelectorAll('.turn .notice').length === 2");
    // Nothing of it is lost for who comes later.
    scene.visit(&scene.conversation());
    browser.until("document.querySelectorAll('.turn .notice').length === 2");
}

#[test]
fn markdown_is_laid_out_while_it_streams_and_is_stopped_and_tried_again_on_a_desk() {
    streams(DESK);
}

#[test]
fn markdown_is_laid_out_while_it_streams_and_is_stopped_and_tried_again_on_a_phone() {
    streams(PHONE);
}

fn children(window: Window) {
    let gate = Gate::default();
    let Some(scene) = Scene::open(window, staged(&gate), |_| {}) else { return };
    let browser = &scene.browser;
    let plan = json!({"items": [
        {"step": "Have it written", "status": "in_progress"}, {"step": "Read it aloud", "status": "pending"},
    ]});
    let task = json!({"task": "WAIT\nSAY a leaf falls"});
    scene.send_lines(&[
        &format!("CALL update_plan {plan}"),
        &format!("CALL agent_haiku {task}"),
        "SAY It is *written*.",
    ]);
    browser.shows(".plan .in_progress", "Have it written");
    browser.shows(".plan .pending", "Read it aloud");
    browser.shows(".work .kind", "agent");
    browser.shows(".work .name", "haiku");
    browser.until("document.querySelector('.work time[data-since]')");
    assert_eq!(
        browser.eval("return document.querySelectorAll('.work > li.tool').length"),
        1,
        "a plan is no call"
    );
    gate.open();
    browser.shows(".turn .prose em", "written");
    scene.ended();
    browser.until("document.querySelector('.work .sign.good')");
    browser.shows(".work .facts", "60 tokens · $");
    browser.shows(".turn .meta", "180 tokens");
    browser.shows(".turn .meta", "$0.00060");
    // From the journal it is told the same.
    scene.visit(&scene.conversation());
    browser.shows(".happened summary", "2 calls · 1 sub-agent");
    browser.click(".happened summary");
    browser.shows(".happened .work .name", "haiku");
    browser.click(".happened .work .name");
    browser.until("location.hash.includes('/n/')");
    browser.shows(".inspector .io-text", "a leaf falls");
}

#[test]
fn sub_agents_are_shown_as_they_work_and_the_plan_beside_them_on_a_desk() {
    children(DESK);
}

#[test]
fn sub_agents_are_shown_as_they_work_and_the_plan_beside_them_on_a_phone() {
    children(PHONE);
}

#[test]
fn who_answers_is_chosen_for_a_conversation_and_holds_for_the_next_message() {
    let Some(scene) = scene(PHONE) else { return };
    let browser = &scene.browser;
    browser.until("[...document.querySelectorAll('.composer option')].some(o => o.value === 'haiku')");
    let choose = "const s = document.querySelector('.composer select'); s.value = 'haiku'; s.dispatchEvent(new Event('change'))";
    browser.eval(choose);
    browser.until("document.getElementById('live').textContent.includes('haiku answers')");
    scene.send("rust");
    scene.ended();
    browser.shows(".turn .meta a[href='#/agents/haiku']", "haiku");
    scene.visit(&scene.conversation());
    browser.until("document.querySelector('.composer select')?.value === 'haiku'");
}

/// A browser has six connections for each host, and keeps the pages that somebody left.
#[test]
fn pages_that_were_left_hold_no_connection() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    scene.send("the first");
    scene.ended();
    let conversation = scene.conversation();
    for _ in 0..8 {
        scene.visit(&conversation);
        browser.shows(".turn .prose", "the first");
    }
    // One to which somebody comes back goes on where it was.
    browser.go("about:blank");
    browser.back();
    browser.shows(".turn .prose", "the first");
    scene.send("the second");
    browser.shows(".turn:last-child .prose", "the second");
}

fn beside(window: Window) {
    let gate = Gate::default();
    let Some(scene) = Scene::open(window, staged(&gate), |_| {}) else { return };
    let browser = &scene.browser;
    let task = "WAIT\nSAY a leaf falls";
    scene.send_lines(&[
        &format!("CALL spawn_agent {}", json!({"agent": "haiku", "task": task})),
        &format!("CALL agent_haiku {}", json!({"task": task})),
        "SAY It is written.",
    ]);
    browser.shows(".beside li", "@haiku");
    browser.shows(".beside li", "working");
    browser.write(".beside input", "in French");
    browser.click(".beside form button:not([type=button])");
    // It has asked its model, and reads this when that has answered.
    browser.shows(".beside li", "1 unread");
    browser.click(".beside [type=button]");
    browser.shows(".beside li", "closed");
    browser.until("document.querySelector('.beside form').hidden");
    // The answer of one that was stopped is waited for as well, by nobody.
    gate.open();
    gate.open();
    browser.shows(".turn .prose", "It is written.");
    browser.until("document.querySelector('.beside').hidden");
}

#[test]
fn agents_that_work_beside_a_turn_are_shown_told_more_and_stopped_on_a_desk() {
    beside(DESK);
}

#[test]
fn agents_that_work_beside_a_turn_are_shown_told_more_and_stopped_on_a_phone() {
    beside(PHONE);
}
