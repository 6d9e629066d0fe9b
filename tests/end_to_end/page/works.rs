//! By keyboard, on a phone, without motion, in either theme; and what a load of the page takes.

use std::time::Instant;

use serde_json::json;

use super::{
    ENTER, ESCAPE, TAB,
    browser::{DESK, PHONE},
    scene,
};

#[test]
fn nothing_moves_for_who_wants_no_motion() {
    let Some(scene) = scene(PHONE) else { return };
    let browser = &scene.browser;
    let moves = "return [...document.querySelectorAll('*')].filter(e => { const s = getComputedStyle(e); \
                 return (s.transitionProperty !== 'none' && s.transitionDuration.split(', ').some(d => parseFloat(d) > 0)) || s.animationName !== 'none'; }).length";
    assert_eq!(browser.eval(moves), 1, "the drawer alone slides");
    browser.prefers("reduced-motion", "reduce");
    browser.until("matchMedia('(prefers-reduced-motion: reduce)').matches");
    assert_eq!(browser.eval(moves), 0);
    browser.click("#menu");
    browser.until("document.getElementById('side').getBoundingClientRect().left === 0");
    assert_eq!(browser.eval("return document.getAnimations().length"), 0);
}

#[test]
fn a_theme_that_is_chosen_is_kept_and_the_system_chooses_without_one() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    let ground = || browser.eval("return getComputedStyle(document.body).backgroundColor");
    let light = ground();
    browser.prefers("color-scheme", "dark");
    browser.until("matchMedia('(prefers-color-scheme: dark)').matches");
    let dark = ground();
    assert_ne!(light, dark);
    browser.click("#places button");
    assert_eq!(ground(), light, "chosen over the system");
    scene.visit("#/agents");
    browser.shows("main h1", "Agents");
    assert_eq!(ground(), light, "and kept");
    browser.click("#places button");
    assert_eq!(ground(), dark);
    browser.click("#places button");
    browser.prefers("color-scheme", "light");
    browser.until("matchMedia('(prefers-color-scheme: light)').matches");
    assert_eq!(ground(), light);
}

#[test]
fn the_drawer_of_a_phone_is_used_by_touch_and_by_keyboard() {
    let Some(scene) = scene(PHONE) else { return };
    let browser = &scene.browser;
    browser.until("document.querySelector('#places a')");
    let seen = "document.getElementById('side').checkVisibility({visibilityProperty: true})";
    assert_eq!(browser.eval(&format!("return {seen}")), json!(false));
    browser.click("#menu");
    browser.until(&format!("{seen} && document.getElementById('menu').ariaExpanded === 'true'"));
    browser.until("document.activeElement.closest('#side')");
    browser.press(&ESCAPE.to_string());
    browser.until(&format!("!{seen} && document.activeElement.id === 'menu'"));
    browser.press(&ENTER.to_string());
    browser.until("document.getElementById('side').getBoundingClientRect().left === 0");
    browser.click("#places a");
    browser.until(&format!("!{seen}"));
    browser.shows("main h1", "Agents");
    // What a finger is to meet is large enough for one.
    scene.view("#/new");
    browser.until("document.querySelector('.composer')");
    let small = "return [...document.querySelectorAll('button, .button, select')].filter(e => e.checkVisibility({visibilityProperty: true}) && \
                 !e.classList.contains('skip')).filter(e => { const b = e.getBoundingClientRect(); return b.height < 40 || b.width < 24; }).map(e => e.outerHTML.slice(0, 80))";
    assert_eq!(browser.eval(small), json!([]));
}

#[test]
fn tab_reaches_the_content_first_and_everything_in_its_order() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    scene.view("#/agents");
    browser.until("document.querySelector('.card')");
    browser.eval("document.activeElement.blur()");
    scene.visit("#/agents");
    browser.until("document.querySelector('.card')");
    browser.press(&TAB.to_string());
    browser.until("document.activeElement.id === 'skip'");
    browser.press(&ENTER.to_string());
    browser.until("document.activeElement.id === 'main'");
    browser.press(&TAB.to_string());
    browser.until("document.activeElement.closest('main') && document.activeElement.matches('a')");
    let ring = "return getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.eval(ring), "solid", "the focus is seen");
}

/// What a load takes, measured where no cache helps: bytes of bodies as they are sent, requests, and the time until one can write and
/// until an answer stands there.
#[test]
fn a_load_is_small_and_asks_nobody_else() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    browser.devtools("Network.setCacheDisabled", &json!({"cacheDisabled": true}));
    let _ = browser.requests();
    scene.visit("#/new");
    browser.until("document.querySelector('.welcome button')");
    let sums = browser.eval(
        "const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]; \
         const files = all.filter(e => !e.name.includes('/control/') && !e.name.includes('/events')); \
         return [files.length, files.reduce((sum, e) => sum + e.transferSize, 0), all.length, \
                 Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0), \
                 Math.round(performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd)]",
    );
    let asked = browser.requests();
    let origin = browser.eval("return location.origin");
    let origin = origin.as_str().expect("an origin");
    let outside: Vec<_> =
        asked.iter().filter(|url| !url.starts_with(origin) && *url != "about:blank").collect();
    assert!(outside.is_empty(), "{outside:?}");
    let [files, sent] = [0, 1].map(|at| sums[at].as_u64().expect("a number"));
    let began = Instant::now();
    scene.send("hello");
    browser.shows(".turn .prose", "hello");
    println!(
        "a load of the page: {files} files, {sent} bytes, {} requests; painted after {} ms, ready after {} ms; an answer {} ms after its message",
        sums[2],
        sums[3],
        sums[4],
        began.elapsed().as_millis()
    );
    assert!(files <= 40 && sent < 200_000, "{files} files, {sent} bytes");
}

/// Somebody who may only read is offered what they may do, and told who may do the rest.
#[test]
fn who_may_only_read_is_offered_nothing_else() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    scene.send("for readers");
    scene.ended();
    let conversation = scene.conversation();
    let promised = json!({"name": "guest", "may": ["read"], "sessions": "*", "agents": []});
    let code = scene.daemon.client().ask("tokens.promise", promised).expect("a promise")["code"].clone();
    let origin = browser.eval("return location.origin");
    let (origin, code) = (origin.as_str().expect("an origin"), code.as_str().expect("a code"));
    browser.go(&format!("{origin}/sign-in?code={code}"));
    browser.until("document.querySelector('#places a')");
    scene.visit(&conversation);
    browser.shows(".turn .prose", "for readers");
    let offered = "return [...document.querySelectorAll('#places a')].map(a => a.textContent).join()";
    assert_eq!(browser.eval(offered), "Agents");
    assert_eq!(browser.eval("return document.querySelector('.composer').checkVisibility()"), json!(false));
}
