//! A real browser, driven over WebDriver: JSON over HTTP to a driver on loopback.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{harness::until, http::client::Door};

/// Under which an element is told: <https://www.w3.org/TR/webdriver2/#elements>, read on 2026-11-24.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The same browser without what shows a window on a screen, where it is installed: it starts in half the time.
const WITHOUT_SCREEN: &str = "/usr/bin/chromium-headless-shell";

/// A window of a browser with a profile of its own; both end with this value.
pub struct Browser {
    driver: Child,
    door: Door,
    session: String,
    /// Removed in the end.
    _profile: tempfile::TempDir,
}

/// How a window is.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub width: u32,
    pub dark: bool,
}

pub const DESK: Window = Window { width: 1440, dark: false };
pub const PHONE: Window = Window { width: 390, dark: true };

impl Browser {
    /// A window; none, and a sentence that says so, where no browser can be driven.
    pub fn open(window: Window) -> Option<Self> {
        let (driver, port) = driver()?;
        let profile = tempfile::tempdir().expect("a temporary folder");
        let door = Door::at(([127, 0, 0, 1], port).into());
        let mut browser = Self { driver, door, session: String::new(), _profile: profile };
        let made = browser.ask("POST", "/session", &browser.wishes(window));
        browser.session = format!("/session/{}", made["sessionId"].as_str().expect("an id"));
        if window.dark {
            browser.prefers("color-scheme", "dark");
        }
        Some(browser)
    }

    /// What the system of the reader says it prefers, in place of what it said before.
    pub fn prefers(&self, what: &str, value: &str) {
        let feature = json!({"features": [{"name": format!("prefers-{what}"), "value": value}]});
        self.devtools("Emulation.setEmulatedMedia", &feature);
    }

    /// A command of the developer tools, for what WebDriver has none.
    pub fn devtools(&self, command: &str, params: &Value) -> Value {
        self.of_session("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": params}))
    }

    fn wishes(&self, Window { width, .. }: Window) -> Value {
        let profile = format!("--user-data-dir={}", self._profile.path().display());
        let size = format!("--window-size={width},900");
        let mut options = json!({"args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--no-proxy-server", profile, size,
        ]});
        let without_screen = Path::new(WITHOUT_SCREEN).exists();
        if without_screen {
            options["binary"] = json!(WITHOUT_SCREEN);
        }
        if width < 500 {
            let metrics = json!({"width": width, "height": 844, "pixelRatio": 1, "touch": true});
            options["mobileEmulation"] = json!({"deviceMetrics": metrics});
        }
        let name = if without_screen { "chrome-headless-shell" } else { "chrome" };
        json!({"capabilities": {"alwaysMatch": {
            "browserName": name, "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}})
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let answer = self.door.send(method, path, &[("content-type", "application/json")], &body);
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.body);
        answer.json()["value"].clone()
    }

    fn of_session(&self, method: &str, path: &str, body: &Value) -> Value {
        self.ask(method, &format!("{}{path}", self.session), body)
    }

    pub fn go(&self, url: &str) {
        self.of_session("POST", "/url", &json!({"url": url}));
    }

    /// Goes back, as a person does: a script that leaves its own page may be torn off before it answers.
    pub fn back(&self) {
        self.of_session("POST", "/back", &json!({}));
    }

    pub fn reload(&self) {
        self.of_session("POST", "/refresh", &json!({}));
    }

    /// What a script of the page gives.
    pub fn eval(&self, script: &str) -> Value {
        self.of_session("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// What a script gives in the end: it calls the last of its arguments with that.
    pub fn later(&self, script: &str) -> Value {
        self.of_session("POST", "/execute/async", &json!({"script": script, "args": []}))
    }

    /// Waits until an expression of the page is true, or gives something.
    pub fn until(&self, expression: &str) -> Value {
        let given =
            |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && value != "" && value != 0;
        let found =
            until("the page shows it", || Some(self.eval(&format!("return {expression}"))).filter(given));
        found.unwrap_or_else(|| {
            let shown = self.eval("return location.href + '\\n' + document.body.innerText");
            panic!(
                "{expression} did not become true\n{}\n{:?}",
                shown.as_str().unwrap_or_default(),
                self.log()
            )
        })
    }

    /// Waits until the text of an element contains this.
    pub fn shows(&self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!(
            "[...document.querySelectorAll({selector})].some(e => e.innerText.includes({text}))"
        ));
    }

    fn element(&self, selector: &str) -> String {
        self.until(&format!("document.querySelector({})", json!(selector)));
        let found = self.of_session("POST", "/element", &json!({"using": "css selector", "value": selector}));
        found[ELEMENT].as_str().expect("an element").to_owned()
    }

    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.of_session("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Types into an element, as a person does.
    pub fn write(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.of_session("POST", &format!("/element/{element}/value"), &json!({"text": text}));
    }

    /// Presses keys, wherever the focus is.
    pub fn press(&self, keys: &str) {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
            })
            .collect();
        self.of_session(
            "POST",
            "/actions",
            &json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]}),
        );
    }

    /// Goes on in a frame of the page; in the page itself without one.
    pub fn frame(&self, index: Option<usize>) {
        self.of_session("POST", "/frame", &json!({"id": index}));
    }

    /// What the browser complained of: scripts that failed, and what the policy kept from the page.
    pub fn log(&self) -> Vec<String> {
        self.lines("browser")
    }

    /// Every address that was asked for since this was asked before, whatever asked for it.
    pub fn requests(&self) -> Vec<String> {
        let told = self.lines("performance").into_iter().filter_map(|line| serde_json::from_str(&line).ok());
        let sent = told.filter(|told: &Value| told["message"]["method"] == "Network.requestWillBeSent");
        sent.filter_map(|told| told["message"]["params"]["request"]["url"].as_str().map(str::to_owned))
            .collect()
    }

    fn lines(&self, log: &str) -> Vec<String> {
        let log = self.of_session("POST", "/se/log", &json!({"type": log}));
        let lines = log.as_array().into_iter().flatten().filter_map(|entry| entry["message"].as_str());
        lines.map(str::to_owned).collect()
    }

    /// What the window shows: a PNG in base 64.
    pub fn picture(&self) -> String {
        self.of_session("GET", "/screenshot", &Value::Null).as_str().expect("a picture").to_owned()
    }
}

/// How often a driver is started. Each looks for a port that is free for IPv6, and ends where another program has the same one
/// for IPv4, as tests beside this one do.
const STARTS: usize = 20;

/// A driver, and the port at which it listens; none, and a sentence that says so, where there is none.
fn driver() -> Option<(Child, u16)> {
    let mut said = Vec::new();
    for _ in 0..STARTS {
        let started =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut driver) = started else {
            println!("skipped: there is no `chromedriver`, so no browser can be driven");
            return None;
        };
        said.clear();
        for line in BufReader::new(driver.stdout.take().expect("it is piped")).lines().map_while(Result::ok) {
            if let Some(port) = port(&line) {
                return Some((driver, port));
            }
            said.push(line);
        }
        driver.wait().expect("it ended");
    }
    panic!("no driver listens after {STARTS} starts; the last one said:\n{}", said.join("\n"));
}

/// The port that a line of the driver tells; the first line tells the one that was asked for, 0.
fn port(line: &str) -> Option<u16> {
    line.strip_suffix('.')?.rsplit_once(" on port ")?.1.parse().ok().filter(|port| *port > 0)
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A test that fails drops this while it panics: a second panic would hide the first.
        if !std::thread::panicking() {
            self.of_session("DELETE", "", &json!({}));
        } else {
            let _ = self.door.open(
                "DELETE",
                &self.session,
                &[("host", "localhost"), ("connection", "close")],
                "",
            );
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
