//! Pictures of the page for the documentation, taken of the real one. With `DRUPE_BLESS=1` they are taken anew; otherwise it is
//! asked that they are there and small.

use std::{env, fs, path::PathBuf, thread, time::Duration};

use serde_json::{Value, json};

use super::{
    Scene,
    browser::{DESK, PHONE, Window},
    stage::Gate,
};
use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    wire::Wire,
};

const VIEWS: [&str; 4] = ["conversation", "timeline", "agents", "usage"];

/// Bytes of a picture: it is read over the network and kept for ever.
const MOST: u64 = 180 * 1024;

fn file(view: &str, window: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/pictures/{view}-{window}.png"))
}

const ANSWER: &str = "The offer of **Lindqvist** is the best one, although it is not the cheapest:\n\n\
    | offer | price | delivery | warranty |\n|---|---|---|---|\n| Abel & Sons | 4,180 € | 3 weeks | 2 years |\n\
    | **Lindqvist** | 4,320 € | 10 days | 5 years |\n| Moreau | 4,900 € | 2 weeks | 5 years |\n\n\
    Abel leaves out the installation, which costs some 600 € elsewhere. A reply to Lindqvist is in `reply.md`; \
    it asks for a date in the week of the 7th.";

const COMPARED: &str = "Lindqvist: everything is included. Abel leaves out the installation. Moreau is dearer by 13 % for the same.";

/// The model of the person whose conversation is shown.
fn model(gate: &Gate) -> ModelServer {
    let (gate, ill) = (gate.clone(), std::sync::Mutex::new(true));
    ModelServer::measuring(move |request| {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let since = messages.iter().rev().take_while(|message| message["role"] != "user");
        let step = since.filter(|message| message["role"] == "assistant").count();
        let says = |text: &str| messages[0]["content"].as_str().is_some_and(|system| system.contains(text));
        thread::sleep(Duration::from_millis(350));
        if says("You compare") {
            let mut ill = ill.lock().expect("no test panics while it holds this");
            if std::mem::take(&mut *ill) {
                return Say::Fail(Wire::Status(503, "overloaded"));
            }
            thread::sleep(Duration::from_millis(900));
            return Say::Text(COMPARED.into());
        }
        if says("You find times") {
            gate.pass();
            return Say::Text("Tuesday at ten.".into());
        }
        let call = |name: &str, parameters: Value| (name.to_owned(), parameters);
        let plan = |done: usize| {
            let steps = ["Read the three offers", "Compare them", "Draft a reply to the best one"];
            let items = steps.iter().enumerate().map(|(at, step)| {
                let status = match at.cmp(&done) {
                    std::cmp::Ordering::Less => "done",
                    std::cmp::Ordering::Equal => "in_progress",
                    std::cmp::Ordering::Greater => "pending",
                };
                json!({"step": step, "status": status})
            });
            call("update_plan", json!({"items": items.collect::<Vec<_>>()}))
        };
        let read = |name: &str| call("files_read", json!({"path": format!("offers/{name}.md")}));
        let user = messages.iter().rev().find(|message| message["role"] == "user");
        let asked =
            user.and_then(|message| message["content"].as_str()).unwrap_or(&latest(request).1).to_owned();
        match (asked.contains("call with them"), step) {
            (true, 0) => Say::Call(vec![call(
                "agent_scheduler",
                json!({"task": "Half an hour next week, in the morning."}),
            )]),
            (true, _) => Say::Text("Tuesday at ten is free for both.".into()),
            (false, 0) => Say::Call(vec![plan(0), read("abel"), read("lindqvist"), read("moreau")]),
            (false, 1) => Say::Call(vec![
                plan(1),
                call(
                    "agent_analyst",
                    json!({"task": "Which of the three offers is the best one, and what does each leave out?"}),
                ),
            ]),
            (false, 2) => Say::Call(vec![
                plan(2),
                call("files_write", json!({"path": "reply.md", "content": "Dear Ms Lindqvist,\n\n…\n"})),
            ]),
            (false, 3) => Say::Call(vec![plan(3)]),
            (false, _) => Say::Text(ANSWER.into()),
        }
    })
}

fn prepare(daemon: &Daemon) {
    for (id, description, task) in [
        (
            "analyst",
            "Compares offers, contracts and figures, and says what is left out.",
            "You compare. Be exact.",
        ),
        ("scheduler", "Finds times that suit everybody, and writes invitations.", "You find times."),
        (
            "translator",
            "Translates between German, French, Dutch and English, and keeps the tone.",
            "You translate.",
        ),
        ("archivist", "Files letters and receipts, and finds them again.", "You file."),
    ] {
        let usage = format!("---\ndescription: {description}\n---\n{task}\n");
        daemon.write(&format!("extensions/{id}.md"), &usage);
    }
    for (name, price) in [("abel", "4,180"), ("lindqvist", "4,320"), ("moreau", "4,900")] {
        daemon.write(&format!("workspace/offers/{name}.md"), &format!("# Offer\n\nTotal: {price} €\n"));
    }
}

/// What earlier days would have used: what today did, more or less.
fn earlier_days(daemon: &Daemon) {
    let journal = rusqlite::Connection::open(daemon.path().join("journal.db")).expect("a file");
    journal.busy_timeout(Duration::from_secs(10)).expect("a connection has one");
    for back in (1..30).filter(|back| back % 7 > 1) {
        let factor = 3 + (back * 37) % 17;
        let copied = "INSERT INTO usage SELECT day - ?1, session, agent, model, invocations * ?2, calls * ?2, input_tokens * ?2, \
                      input_tokens * ?2 / 3, output_tokens * ?2, 0, 0, 0, cost_usd * ?2 FROM usage \
                      WHERE day = (SELECT MAX(day) FROM usage)";
        journal.execute(copied, [back, factor]).expect("rows");
    }
}

fn take(window: Window, name: &str) {
    let gate = Gate::default();
    let Some(scene) = Scene::open(window, model(&gate), prepare) else { return };
    let browser = &scene.browser;
    browser.devtools("Emulation.setScrollbarsHidden", &json!({"hidden": true}));
    let keep = |view: &str| {
        browser.eval("document.activeElement.blur()");
        // Fonts and the last frame are there, and nothing is under way.
        browser.later("document.fonts.ready.then(() => requestAnimationFrame(() => requestAnimationFrame(arguments[arguments.length - 1])))");
        let picture = decoded(&browser.picture());
        let file = file(view, name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, picture).expect("a picture");
    };
    scene.send("Compare the three offers in offers/ and draft a reply to the best one.");
    scene.ended();
    let (conversation, first) = (scene.conversation(), scene.turn());
    scene.send("And find a time for a call with them next week.");
    browser.shows(".turn:last-child .work .name", "scheduler");
    browser.shows("[data-glance] .runs", "1 running");
    keep("conversation");
    scene.view(&format!("{conversation}/t/{first}"));
    browser.until("document.querySelectorAll('.rows a').length > 10");
    browser.eval("document.querySelector('[data-look=bars]').click()");
    let analyst = "[...document.querySelectorAll('.rows a')].find(a => a.querySelector('.text').textContent === 'analyst')";
    if window.width > 1000 {
        browser.eval(&format!("{analyst}.click()"));
        browser.shows(".inspector .io-text", "Lindqvist");
    }
    keep("timeline");
    scene.view("#/agents");
    browser.shows(".card", "@analyst");
    keep("agents");
    earlier_days(&scene.daemon);
    scene.view("#/usage");
    browser.until("document.querySelectorAll('.plot rect.output').length > 10");
    keep("usage");
    gate.open();
}

#[test]
fn the_pictures_show_the_page_and_are_small() {
    if env::var_os("DRUPE_BLESS").is_some() {
        take(DESK, "desk");
        take(PHONE, "phone");
    }
    for view in VIEWS {
        for window in ["desk", "phone"] {
            let file = file(view, window);
            let size =
                fs::metadata(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).len();
            assert!((1_000..MOST).contains(&size), "{}: {size} bytes", file.display());
        }
    }
}

/// Base 64 as WebDriver has it: <https://www.w3.org/TR/webdriver2/#screen-capture>, read on 2026-11-24.
fn decoded(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut held, mut bytes) = (0u32, 0, Vec::new());
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = LETTERS.iter().position(|known| *known == letter).expect("a letter of base 64");
        bits = bits << 6 | value as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    bytes
}
