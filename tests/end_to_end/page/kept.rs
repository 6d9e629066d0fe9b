//! What is kept beside conversations: schedules, and facts of the memory. Each is found, used and taken away on the page.

use serde_json::{Value, json};

use super::{
    ENTER, ESCAPE, Scene, TAB,
    browser::{DESK, PHONE},
    stage::{Gate, staged},
};
use crate::harness::{Daemon, model_server::ModelServer};

/// A text that a browser would obey if it read it as markup.
const MARKUP: &str = "<img src=x onerror=owned=1>";

/// The mark of a fact that was kept so.
const STRANGERS: &str = "kept while text of strangers was read";

/// What is wrong where markup was made of a text.
const OBEYED: &str = "return typeof owned !== 'undefined' || document.querySelector('main img') !== null";

/// An extension that brings a schedule, which is never due while this runs.
const YEARLY: &str = "id: yearly\nname: Yearly\ndescription: Does something each year.\n\
    agent: {model: default, instructions: Do it.}\nschedules: [{name: report, cron: '@yearly', task: report}]\n";

impl Scene {
    fn clicks(&self, within: &str, label: &str) {
        let button = format!("{within} button[aria-label^=\"{label}\"]");
        // Scrolled to, so that nothing lies over it.
        self.browser.until(&format!("document.querySelector({})", json!(button)));
        self.browser
            .eval(&format!("document.querySelector({}).scrollIntoView({{block: 'center'}})", json!(button)));
        self.browser.click(&button);
    }

    fn schedules(&self) -> Vec<Value> {
        let all = self.daemon.client().ask("schedules.list", json!({})).expect("a list");
        all.as_array().expect("a list").clone()
    }

    fn facts(&self, query: &str) -> Value {
        let asked = json!({"id": "memory", "ask": "list", "params": {"query": query}});
        self.daemon.client().ask("extensions.ask", asked).expect("facts")
    }
}

#[test]
fn a_schedule_is_added_run_paused_and_removed() {
    let prepare = |daemon: &Daemon| daemon.write("extensions/yearly/manifest.yaml", YEARLY);
    let Some(scene) = Scene::open(DESK, ModelServer::obedient(), prepare) else { return };
    let browser = &scene.browser;
    // Of another time zone than the schedule, whichever this machine has.
    browser.devtools("Emulation.setTimezoneOverride", &json!({"timezoneId": "Asia/Tokyo"}));
    scene.view("#/schedules");
    // One of an extension is not removed here: its manifest has it.
    browser.shows("[data-schedule='yearly/report']", "@yearly");
    let removing = "return document.querySelectorAll('.kept button.danger').length";
    assert_eq!(browser.eval(removing), 0);

    // What the daemon refuses stands beside the button, and what was written stays.
    browser.write("#schedule-name", "tea");
    browser.write("#schedule-when", "at noon");
    browser.write("#schedule-timezone", "Europe/Berlin");
    browser.write("#schedule-task", &format!("drink {MARKUP}"));
    browser.press(&format!("{TAB}{ENTER}"));
    browser.shows("#schedule-fault", "at noon");
    browser.eval("document.querySelector('#schedule-when').value = ''");
    browser.write("#schedule-when", &format!("0 16 * * *{ENTER}"));
    let tea = "[data-schedule=tea]";
    browser.shows(tea, "0 16 * * * Europe/Berlin");
    browser.shows(&format!("{tea} .text"), &format!("drink {MARKUP}"));
    browser.shows(tea, "in Europe/Berlin");
    browser.until("document.activeElement.dataset.schedule === 'tea'");
    browser.until("document.querySelector('#schedule-fault').hidden");
    assert_eq!(browser.eval("return document.querySelector('#schedule-name').value"), "");
    assert_eq!(browser.eval(removing), 1);

    scene.clicks(tea, "Run now");
    browser.shows(&format!("{tea} dl .badge"), "done");
    browser.click(&format!("{tea} > details summary"));
    browser.shows(&format!("{tea} .lines li"), "done");
    scene.clicks(tea, "Pause");
    browser.shows(tea, "Paused: ");
    browser.shows(tea, "not while it is paused");
    assert!(scene.schedules().iter().any(|one| one["id"] == "tea" && one["paused"].is_string()));
    scene.clicks(tea, "Run now");
    browser.shows(&format!("{tea} [role=status]"), "is paused");
    scene.clicks(tea, "Resume");
    browser.until("!document.querySelector('[data-schedule=tea] .notice')");
    assert!(scene.schedules().iter().all(|one| one["paused"].is_null()));
    assert_eq!(browser.eval(OBEYED), false);

    // The turn that did it, from there and back.
    browser.click(&format!("{tea} dl a"));
    browser.until("location.hash.startsWith('#/s/schedule%3Atea%3A') && location.hash.includes('/t/')");
    browser.shows(".rows .text", "orchestrator");
    browser.back();

    scene.clicks(tea, "Remove");
    browser.shows("dialog.confirm[open] h2", "Remove tea?");
    browser.press(&ENTER.to_string());
    browser.until(
        "!document.querySelector('dialog.confirm[open]') && document.querySelector('[data-schedule=tea]')",
    );
    scene.clicks(tea, "Remove");
    browser.click("dialog.confirm[open] .danger");
    browser.until("document.querySelector('.kept') && !document.querySelector('[data-schedule=tea]')");
    let left: Vec<Value> = scene.schedules().into_iter().map(|one| one["id"].clone()).collect();
    assert_eq!(left, ["yearly/report"]);
}

#[test]
fn a_fact_is_found_edited_and_forgotten() {
    let strangers = "config: {prefix: pages, labels: {echo: [reads_untrusted]}}\n";
    let prepare = |daemon: &Daemon| daemon.plugin("pages", "faulty", strangers);
    let Some(scene) = Scene::open(PHONE, staged(&Gate::default()), prepare) else { return };
    let browser = &scene.browser;
    let save = |text: &str| format!("CALL memory_save {}", json!({"text": text}));
    // More than a page of them, in two messages.
    for half in [0, 1] {
        let many: Vec<String> = (0..13).map(|at| save(&format!("Shelf {half}{at} has tools."))).collect();
        let mut lines: Vec<&str> = many.iter().map(String::as_str).collect();
        lines.push("SAY kept");
        scene.send_lines(&lines);
        browser.until(&format!("document.querySelectorAll('.turn').length === {half} + 1"));
        scene.ended();
    }
    // One more where a stranger's text was read, so it is asked about and marked.
    scene.send_lines(&["CALL pages_echo {\"value\": \"what a page says\"}", "SAY read"]);
    browser.until("document.querySelectorAll('.turn').length === 3");
    scene.ended();
    let fact = format!("The user's sister is called Mara. {MARKUP}");
    scene.send_lines(&[&save(&fact), "SAY kept"]);
    browser.click(".question .primary");
    browser.until("document.querySelectorAll('.turn').length === 4");
    scene.ended();

    scene.view("#/memory");
    browser.shows("[role=status]", "27 facts");
    browser.shows(".kept .text", &fact);
    browser.shows(".kept .badge", STRANGERS);
    assert_eq!(browser.eval(OBEYED), false);
    let rows = "document.querySelectorAll('.kept').length";
    browser.until(&format!("{rows} === 25"));
    browser.until("[...document.querySelectorAll('nav[aria-label=Pages] button')].at(-1).click() || true");
    browser.until(&format!("{rows} === 2 && location.hash.endsWith('/page/2')"));
    browser.until("document.activeElement.matches('.kept')");
    browser.write("[type=search][aria-label='Search facts']", "sister");
    browser.until(&format!("{rows} === 1 && location.hash.endsWith('/q/sister')"));
    browser.shows(".kept", "kept by orchestrator in ");

    // An address of it holds by itself.
    scene.visit("#/memory/q/sister");
    browser.shows(".kept .text", "Mara");
    scene.clicks(".kept", "Edit");
    browser.until("document.activeElement.matches('.kept textarea')");
    browser.press(&ESCAPE.to_string());
    browser.until("document.activeElement.matches('.kept button[aria-label^=Edit]')");
    browser.press(&ENTER.to_string());
    browser.write(".kept textarea", " She lives in Lyon.");
    // What another fact says already is refused, with the reason where one writes.
    browser.eval("document.querySelector('.kept textarea').value = 'Shelf 00 has tools.'");
    browser.click(".kept form .primary");
    browser.shows(".kept [role=status]", "says the same");
    browser.eval(&format!(
        "document.querySelector('.kept textarea').value = {}",
        json!(format!("{fact} Lyon."))
    ));
    browser.click(".kept form .primary");
    browser.shows(".kept .text", "onerror=owned=1> Lyon.");
    browser.shows(".kept", "written by you");
    browser.until("!document.querySelector('.kept .badge')");
    let kept = scene.facts("sister");
    assert!(
        kept["facts"][0]["text"] == format!("{fact} Lyon.") && kept["facts"][0]["by_operator"] == true,
        "{kept}"
    );

    // Asked first: neither Escape nor the key that asked forgets it.
    browser.eval("document.querySelector('.kept .danger').focus()");
    for leave in [ESCAPE, ENTER] {
        browser.press(&ENTER.to_string());
        browser.shows("dialog.confirm[open] .text", &fact);
        browser.until("document.activeElement.textContent === 'Cancel'");
        browser.press(&leave.to_string());
        browser.until("!document.querySelector('dialog.confirm[open]') && document.activeElement.matches('.kept .danger')");
    }
    assert_eq!(scene.facts("sister")["total"], 1);
    browser.press(&ENTER.to_string());
    browser.until("document.activeElement.textContent === 'Cancel'");
    browser.press(&format!("{TAB}{ENTER}"));
    browser.shows("[role=status]", "No fact fits");
    browser.until("document.activeElement.matches('h1')");
    assert_eq!(scene.facts("sister")["total"], 0);
    assert_eq!(browser.eval(OBEYED), false);
    let complaints = browser.log();
    assert!(complaints.iter().all(|line| line.contains("400")), "{complaints:?}");

    scene.daemon.says(&["ext", "disable", "memory"]);
    scene.visit("#/memory");
    browser.shows(".notice", "The extension memory is off");
}
