//! Every view can be read, reached and used: on a desk and on a phone, in light and in dark.
//!
//! What can be audited is audited by axe-core, which is fetched and never kept here; what it leaves open is looked at besides.

use std::{env, fs, path::PathBuf, sync::LazyLock};

use serde_json::json;

use super::{
    Scene,
    browser::{DESK, PHONE, Window},
    scene,
};
use crate::harness::DRUPE;

/// What axe-core does not judge, a sentence each: a page that is wider than its window, or what stands at its side than that, ids
/// that stand twice, several headings of the view, and the contrast of texts on a ground that is a gradient or is let through,
/// which it leaves undecided.
const FAULTS: &str = r#"
const faults = [];
const seen = (e) => e.checkVisibility({visibilityProperty: true}) && !e.closest('.unseen, .skip');
const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
if (new Set(ids).size !== ids.length) faults.push('an id stands twice');
if ([...document.querySelectorAll('h1')].filter(seen).length !== 1) faults.push('one heading of the view');
const main = document.querySelector('main');
if (document.documentElement.scrollWidth > innerWidth || main.scrollWidth > main.clientWidth) faults.push('wider than the window');
const side = document.getElementById('side');
if (side.scrollWidth > side.clientWidth) faults.push('wider than the side');
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4).reduce((s, c, i) => s + c * [.2126, .7152, .0722][i], 0);
const ground = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
for (const e of document.body.querySelectorAll('*')) {
  if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !seen(e) || e.closest('svg, option, noscript, :disabled')) continue;
  const [a, b] = [light(rgba(getComputedStyle(e).color)), light(ground(e))];
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) faults.push('contrast ' + ratio.toFixed(2) + ': ' + e.outerHTML.slice(0, 90));
}
return faults;
"#;

/// A rule and the elements that break it, a sentence each.
const AUDIT: &str = r"
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ['violations']}).then(
  (result) => done(result.violations.flatMap((rule) =>
    rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`))),
  (error) => done([String(error)]));
";

/// What opens the list of agents, and what adds a file to a message.
const TYPED: &str = "const t = document.querySelector('.composer textarea'); t.value = '@h'; t.selectionStart = 2; t.dispatchEvent(new Event('input'))";
const DROPPED: &str = "const data = new DataTransfer(); data.items.add(new File(['x'], 'a.txt')); \
    document.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))";

/// The audit: the file that `DRUPE_AXE` names, or the one that `.ci/run` fetched into the folder of what is built.
static AXE: LazyLock<Option<String>> = LazyLock::new(|| {
    let fetched = || Some(PathBuf::from(DRUPE).parent()?.parent()?.join("axe/package/axe.min.js"));
    let script = env::var_os("DRUPE_AXE").map(PathBuf::from).or_else(fetched).map(fs::read_to_string);
    if !matches!(script, Some(Ok(_))) {
        println!("skipped: there is no axe-core, see `.ci/run`, so the views are not audited by it");
    }
    script?.ok()
});

/// What is wrong with a view, in the light and in the dark, a sentence each.
fn faults(scene: &Scene, view: &str, shown: &str) -> Vec<String> {
    scene.view(view);
    scene.browser.until(&format!("document.querySelector({})", json!(shown)));
    let mut faults = Vec::new();
    for theme in ["light", "dark"] {
        scene.browser.eval(&format!("document.documentElement.dataset.theme = '{theme}'"));
        let mut found = vec![scene.browser.eval(FAULTS)];
        if let Some(axe) = AXE.as_ref() {
            // It is no script of the page, so it does not pass through the page's policy.
            if scene.browser.eval("return typeof axe") == "undefined" {
                scene.browser.eval(axe);
            }
            found.push(scene.browser.later(AUDIT));
        }
        let each = found.iter().flat_map(|list| list.as_array().expect("a list"));
        faults.extend(each.map(|fault| format!("{view}, {theme}: {fault}")));
    }
    faults
}

fn walk(window: Window) {
    let Some(scene) = scene(window) else { return };
    let file = scene.daemon.path().join("effects");
    scene.send("# A heading");
    let call = json!({"path": file, "nonce": "x"});
    scene.browser.shows(".turn .prose", "A heading");
    scene.send(&format!("careful_effect_append {call}"));
    scene.browser.until("document.querySelector('.question')");
    // A schedule of which something became, and a fact.
    let mut client = scene.daemon.client();
    let tea = json!({"name": "tea", "when": "@daily", "task": "drink tea"});
    client.ask("schedules.add", tea).expect("it is added");
    client.ask("schedules.run", json!({"id": "tea"})).expect("it is run");
    scene.daemon.turn("notes", "memory_save {\"text\": \"The user's sister is called Mara.\"}");
    let (session, turn) = (scene.conversation(), scene.turn());
    scene.view(&format!("{session}/t/{turn}"));
    let row = scene.browser.until("document.querySelector('.rows li:last-child a')?.hash");
    let row = row.as_str().expect("an address").to_owned();
    let views = [
        (session.as_str(), ".question"),
        ("#/new", ".welcome button"),
        (&format!("{session}/t/{turn}"), ".rows"),
        (row.as_str(), ".inspector .facts"),
        ("#/agents", ".card"),
        ("#/agents/haiku", ".code"),
        ("#/agents/orchestrator", ".facts"),
        ("#/extensions", ".card"),
        ("#/extensions/careful", "table"),
        ("#/approvals", ".question"),
        ("#/schedules/tea", ".lines .badge.good"),
        ("#/memory", ".kept .text"),
        ("#/usage", ".plot"),
        ("#/daemon", "table"),
        (&format!("#/why/{turn}"), ".why"),
        ("#/nowhere", "h1"),
    ];
    let mut found: Vec<String> = views.iter().flat_map(|(view, shown)| faults(&scene, view, shown)).collect();
    // What opens within a view: the flame, the list of agents, files of a message, the keys, the drawer.
    for (view, act, shown) in [
        (format!("{session}/t/{turn}"), "document.querySelector('[data-look=flame]').click()", ".flame-bar"),
        (session.clone(), "document.querySelector('.work .more').click()", ".io section"),
        ("#/new".to_owned(), TYPED, ".mentions li"),
        ("#/new".to_owned(), DROPPED, ".added li"),
        ("#/memory".to_owned(), "document.querySelector('.kept .danger').click()", "dialog.confirm[open]"),
        (
            "#/memory".to_owned(),
            "document.querySelector('dialog.confirm').close(); document.querySelector('.kept button').click()",
            ".kept textarea",
        ),
        ("#/new".to_owned(), "document.querySelector('dialog.keys').showModal()", "dialog[open]"),
        (
            "#/agents".to_owned(),
            "document.querySelector('dialog.keys').close(); document.getElementById('menu').click()",
            ".page",
        ),
    ] {
        scene.view(&view);
        scene.browser.until("document.querySelector('main > *')");
        scene.browser.until("document.querySelector('.rows, .work .more, .welcome button, .card, .kept')");
        scene.browser.eval(act);
        found.extend(faults(&scene, &view, shown).iter().map(|fault| format!("{shown} in {fault}")));
    }
    assert!(found.is_empty(), "{found:#?}");
    let complaints = scene.browser.log();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn every_view_can_be_read_and_used_on_a_desk() {
    walk(DESK);
}

#[test]
fn every_view_can_be_read_and_used_on_a_phone() {
    walk(PHONE);
}
