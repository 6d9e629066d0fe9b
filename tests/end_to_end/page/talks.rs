//! Signing in, conversations, questions and timelines, as a person meets them.

use serde_json::json;

use super::{DOWN, ENTER, ESCAPE, browser::DESK, scene};

#[test]
fn a_stranger_reads_how_to_sign_in_and_a_link_signs_in_once() {
    let Some(scene) = scene(DESK) else { return };
    let link = scene.link();
    scene.browser.go(&link);
    scene.browser.until("document.querySelector('.composer')");
    scene.view("#/daemon");
    scene.browser.until("document.querySelector('.page header button')");
    scene.browser.click(".page header button");
    scene.browser.shows("body", "drupe open");
    scene.browser.go(&link);
    scene.browser.until("document.readyState === 'complete'");
    let again = scene.browser.eval("return Boolean(document.querySelector('.composer'))");
    assert_eq!(again, json!(false), "a link is good once");
}

#[test]
fn a_message_gets_an_answer_an_address_and_a_timeline_whose_rows_are_links() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    scene.send("a *good* day");
    browser.shows(".turn .prose em", "good");
    browser.until("location.hash.startsWith('#/s/page-')");
    browser.until(
        "[...document.querySelectorAll('.meta .actions button')].some(b => b.textContent === 'Retry')",
    );
    browser.shows("#sessions", "a *good* day");
    let timeline = browser
        .until("[...document.querySelectorAll('.meta a')].find(a => a.textContent === 'Timeline')?.hash");
    scene.view(timeline.as_str().expect("an address"));
    browser.until("document.querySelectorAll('.rows .bar-row').length === 2");
    browser.click(".rows li:last-child .bar-row");
    browser.until("location.hash.includes('/n/')");
    browser.shows(".inspector .io-text", "a *good* day");
    // The same address shows the same in another tab.
    let address = browser.eval("return location.href");
    browser.go("about:blank");
    browser.go(address.as_str().expect("an address"));
    browser.shows(".inspector .io-text", "a *good* day");
    browser.click("[data-look=flame]");
    browser.until("document.querySelectorAll('.flame-bar').length === 2");
    browser.click(".choice + button + a");
    browser.shows(".why", "answered after");
}

#[test]
fn a_question_shows_exactly_what_is_to_run_and_its_answer_holds_for_that() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    let file = scene.daemon.path().join("effects");
    let call = json!({"path": file, "nonce": "one\u{202e}two"});
    scene.send(&format!("careful_effect_append {call}"));
    browser.shows(".question .io-text", r"one\u202etwo");
    browser.shows(".work .gist", r"one\u202etwo");
    browser.shows("[data-glance] .waits", "1 for you");
    assert!(!file.exists(), "nothing ran yet");
    // The answer bears the hash of what was shown.
    let hash = scene.daemon.client().ask("approvals.list", json!({})).expect("a list")[0]["hash"].clone();
    let listen = "window.sent = []; const own = fetch; window.fetch = (to, what) => { sent.push([to, what.body]); return own(to, what); }";
    browser.eval(listen);
    browser.click(".question .primary");
    browser.shows(".turn .work", "allowed by");
    let sent = browser.eval("return sent.find(([to]) => to === '/control/approvals.answer')[1]");
    let sent: serde_json::Value = serde_json::from_str(sent.as_str().expect("a body")).expect("JSON");
    assert_eq!((&sent["hash"], &sent["allow"]), (&hash, &json!(true)));
    browser.shows(".turn .prose", "appended");
    assert!(file.exists());
    scene.view("#/approvals");
    browser.shows(".lines", "careful_effect_append");
}

#[test]
fn texts_of_models_and_tools_are_shown_and_never_obeyed() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    let hostile = "<img src=x onerror=owned=1><script>owned=1</script><b>x</b> [a](javascript:owned=1) ![b](/page/icon.svg)";
    scene.send(hostile);
    browser.shows(".turn .prose", "<img src=x onerror=owned=1>");
    browser.shows("#sessions", "<img src=x");
    browser.shows("main h1", "<img src=x");
    let found = browser.eval(
        "return [document.querySelectorAll('.turns img, .turns script, .turns b, h1 img, #sessions img').length, typeof owned, \
         [...document.links].filter(a => a.protocol === 'javascript:').length]",
    );
    assert_eq!(found, json!([0, "undefined", 0]));
    // What a fault of the page would lead to, the browser refuses.
    let made = "try { document.createElement('div').innerHTML = '<b>x</b>'; return 'made' } catch (e) { return e.name }";
    assert_eq!(browser.eval(made), "TypeError");
    let inline = "const s = document.createElement('div'); s.setAttribute('style', 'color: red'); document.body.append(s); \
                  return s.style.color";
    assert_eq!(browser.eval(inline), "");
    let elsewhere = "return fetch('http://127.0.0.1:9/').then(() => 'sent', e => e.name)";
    assert_eq!(browser.eval(elsewhere), "TypeError");
}

#[test]
fn a_page_that_stays_open_goes_on_over_a_restart() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    scene.send("before");
    browser.shows(".turn .prose", "before");
    // What is written to a turn that goes on belongs to that.
    scene.ended();
    // It is to come back where it was.
    let address = scene.browser.eval("return location.host");
    let settings = std::fs::read_to_string(scene.daemon.path().join("drupe.yaml")).expect("its settings");
    scene.daemon.write("drupe.yaml", &settings.replace("127.0.0.1:0", address.as_str().expect("a host")));
    scene.daemon.client().ask("restart", json!({})).expect("it is agreed");
    scene.daemon.until_status("the second kernel", |s| s["state"] == "ready" && s["generation"] == 2);
    browser.until("fetch('/healthz').then(a => a.ok, () => false)");
    scene.send("after");
    browser.shows(".turn .prose", "after");
    let shown = browser
        .eval("return [location.href, document.body.innerText, document.querySelectorAll('.turn').length]");
    assert_eq!(shown[2], 2, "each message is there once: {shown:#}");
}

#[test]
fn the_keyboard_reaches_everything() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    browser.until("document.querySelector('.welcome button')");
    browser.eval("document.activeElement.blur()");
    browser.press("/");
    browser.until("document.activeElement.matches('.composer textarea')");
    browser.press("@ha");
    browser.until("document.querySelector('.mentions [aria-selected=true]')?.textContent.includes('@haiku')");
    browser.press(&format!("{DOWN}{ENTER}"));
    browser.until("document.querySelector('.composer textarea').value === '@haiku '");
    browser.press(&format!("rust{ENTER}"));
    browser.shows(".turn .prose", "rust");
    browser.press(&ESCAPE.to_string());
    browser.press("k");
    browser.until("document.activeElement.matches('.turn')");
    browser.press("?");
    browser.until("document.querySelector('dialog.keys').open");
    browser.press(&ESCAPE.to_string());
    browser.until("!document.querySelector('dialog.keys').open");
    browser.press("ga");
    browser.shows("main h1", "Agents");
    browser.press("j");
    browser.until("document.activeElement.matches('.card')");
    browser.press(&ENTER.to_string());
    browser.shows("main h2", "Tools");
}

#[test]
fn a_question_has_a_field_for_a_secret_and_takes_it_nowhere_else() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    scene.send(&format!("request_secure_input {}", json!({"name": "TEA_KEY", "purpose": "<b>for tea</b>"})));
    browser.shows(".question .asked", "<b>for tea</b>");
    browser.shows(".question .inputs", "TEA_KEY");
    let named = browser.eval(
        "return document.querySelector('.question .inputs label').htmlFor === document.querySelector('.question .inputs input').id",
    );
    assert_eq!(named, json!(true));
    browser.click(".question .primary");
    browser.until("document.querySelector('.question [role=status]').textContent.includes('does not fit')");
    browser.write(".question .inputs input[type=password]", "kettle-4711-oolong");
    browser.click(".question .primary");
    browser.shows(".turn .prose", "is kept");
    let kept = std::fs::read_to_string(scene.daemon.path().join(".env")).expect("a file");
    assert_eq!(kept, "TEA_KEY=kettle-4711-oolong\n");
    let page = browser.eval("return document.documentElement.outerHTML");
    assert!(!page.to_string().contains("kettle"));
}

#[test]
fn what_is_allowed_in_a_session_is_asked_about_once_listed_and_taken_back() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    let call =
        |nonce: &str| format!("careful_effect_append {}", json!({"path": "/nowhere/at/all", "nonce": nonce}));
    scene.send(&call("x"));
    browser.until("document.querySelectorAll('.question button').length === 3");
    browser.shows(".question", "also covers what else orchestrator does with careful_effect_append");
    browser.click(".question button:last-of-type");
    browser.shows(".turn .prose", "No such file");
    scene.send(&call("y"));
    browser.until("[...document.querySelectorAll('.turn .prose')].filter((one) => one.textContent.includes('No such file')).length === 2");
    assert_eq!(
        browser.eval("return document.querySelector('.question') === null"),
        true,
        "it is asked about once"
    );
    browser.eval("location.hash = '#/approvals'");
    browser.shows(".block", "careful_effect_append");
    browser.click("[aria-label^='Take back']");
    browser.until("!document.querySelector(\"[aria-label^='Take back']\")");
}

#[test]
fn a_message_is_taken_into_the_answer_that_is_made_and_a_turn_is_stopped() {
    let Some(scene) = scene(DESK) else { return };
    let browser = &scene.browser;
    scene.send(&format!("careful_effect_append {}", json!({"path": "/nowhere/at/all", "nonce": "x"})));
    browser.until("document.querySelector('.question')");
    // What is done is told from its beginning to who comes later.
    browser.reload();
    browser.until(
        "document.querySelector('.question') && document.querySelector('.composer select:last-of-type')",
    );
    browser.eval("const mode = document.querySelectorAll('.composer select')[1]; mode.value = 'steer'");
    scene.send("and be quick");
    browser.until("document.querySelectorAll('.turn').length === 2");
    browser.click(".question button:not(.primary)");
    browser.shows(".turn .steered", "and be quick");
    browser.until("document.querySelectorAll('.turn').length === 1");
    browser.shows(".turn .prose", "and be quick");
    scene.send(&format!("careful_effect_append {}", json!({"path": "/nowhere/at/all", "nonce": "y"})));
    browser.until("document.querySelector('.question .primary')");
    browser.click(".composer [aria-label=Stop]");
    browser.shows(".turn .meta", "stopped");
}
