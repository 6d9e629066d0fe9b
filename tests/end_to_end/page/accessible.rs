//! Every view can be read, reached and used: on a desk and on a phone, in light and in dark.

use serde_json::{Value, json};

use super::{
    Scene,
    browser::{DESK, PHONE, Window},
    scene,
};

/// What is wrong with the view that is shown, a sentence each.
const FAULTS: &str = r#"
const faults = [];
const seen = (e) => e.checkVisibility({visibilityProperty: true}) && !e.closest('.unseen, .skip');
const name = (e) => (e.getAttribute('aria-label') || e.innerText || e.labels?.[0]?.innerText || e.title || '').trim();
for (const e of document.querySelectorAll('a, button, input, select, textarea, [role=meter], svg[role=img]'))
  if (seen(e) && !name(e)) faults.push('no name: ' + e.outerHTML.slice(0, 90));
const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
if (new Set(ids).size !== ids.length) faults.push('an id stands twice');
if (document.querySelectorAll('main').length !== 1) faults.push('one main part');
if ([...document.querySelectorAll('h1')].filter(seen).length !== 1) faults.push('one heading of the view');
for (const list of document.querySelectorAll('ul, ol'))
  for (const child of list.children) if (child.tagName !== 'LI') faults.push('a list holds a ' + child.tagName);
const main = document.querySelector('main');
if (document.documentElement.scrollWidth > innerWidth || main.scrollWidth > main.clientWidth) faults.push('wider than the window');
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

fn check(scene: &Scene, view: &str, shown: &str) {
    scene.view(view);
    scene.browser.until(&format!("document.querySelector({})", json!(shown)));
    let faults = scene.browser.eval(FAULTS);
    assert_eq!(faults, Value::Array(Vec::new()), "{view}");
}

fn walk(window: Window) {
    let Some(scene) = scene(window) else { return };
    let file = scene.daemon.path().join("effects");
    scene.send("# A heading");
    let call = json!({"path": file, "nonce": "x"});
    scene.browser.shows(".turn .prose", "A heading");
    scene.send(&format!("careful_effect_append {call}"));
    scene.browser.until("document.querySelector('.question')");
    let session = scene.browser.until("location.hash.startsWith('#/s/') && location.hash");
    let session = session.as_str().expect("an address");
    let turn = scene.browser.until("document.querySelector('.turn').id.replace('turn-', '')");
    let turn = turn.as_str().expect("an id");
    for (view, shown) in [
        (session, ".question"),
        ("#/new", ".welcome button"),
        (&format!("{session}/t/{turn}"), ".rows"),
        ("#/agents", ".card"),
        ("#/agents/haiku", ".code"),
        ("#/extensions", ".card"),
        ("#/extensions/careful", "table"),
        ("#/approvals", ".question"),
        ("#/usage", ".plot"),
        ("#/daemon", "table"),
        (&format!("#/why/{turn}"), ".why"),
        ("#/nowhere", "h1"),
    ] {
        check(&scene, view, shown);
    }
    let complaints = scene.browser.log();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn every_view_can_be_read_and_used_on_a_desk_in_the_light() {
    walk(DESK);
}

#[test]
fn every_view_can_be_read_and_used_on_a_phone_in_the_dark() {
    walk(PHONE);
}
