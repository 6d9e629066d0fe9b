//! The web page in a real browser. Without one the tests say so and pass: everybody can run the others.

mod accessible;
mod arrives;
mod browser;
mod embedded;
mod files;
mod finds;
mod hostile;
mod kept;
mod pictures;
mod stage;
mod talks;
mod timelines;
mod works;

use serde_json::json;

use self::browser::{Browser, Window};
use crate::{
    harness::{Daemon, model_server::ModelServer},
    http::door,
};

/// A daemon whose door is open, with an agent and with a tool that asks first, and a browser that is signed in.
struct Scene {
    browser: Browser,
    daemon: Daemon,
    _server: ModelServer,
}

/// None where there is no browser.
fn scene(window: Window) -> Option<Scene> {
    Scene::open(window, ModelServer::obedient(), |_| {})
}

impl Scene {
    /// With this model, and with what is written into the home before the daemon starts.
    fn open(window: Window, server: ModelServer, prepare: impl FnOnce(&Daemon)) -> Option<Self> {
        let browser = Browser::open(window)?;
        let rest = "  profiles: {local/test: {input_usd: 2, output_usd: 10}}\n\
                    extensions:\n  http: {address: \"127.0.0.1:0\"}\n";
        let mut daemon = Daemon::home(&(server.config() + rest));
        daemon.variable("DRUPE_EXTENSIONS__HTTP__ENABLED", "true");
        prepare(&daemon);
        daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
        daemon.write(
            "extensions/haiku.md",
            "---\ndescription: Writes haikus.\nusage: rust\n---\nYou write haikus.\n",
        );
        daemon.run();
        door(&daemon);
        let scene = Self { browser, daemon, _server: server };
        scene.browser.go(&scene.link());
        scene.browser.until("document.querySelector('.composer textarea')");
        Some(scene)
    }

    /// A link that signs a browser in.
    fn link(&self) -> String {
        self.daemon.says(&["open"]).trim().to_owned()
    }

    /// Writes a message and sends it.
    fn send(&self, text: &str) {
        self.browser.write(".composer textarea", &format!("{text}{ENTER}"));
    }

    /// Sends a message of several lines.
    fn send_lines(&self, lines: &[&str]) {
        let text = json!(lines.join("\n"));
        self.browser.until("document.querySelector('.composer textarea')");
        self.browser.eval(&format!("document.querySelector('.composer textarea').value = {text}"));
        self.browser.write(".composer textarea", &ENTER.to_string());
    }

    /// Opens a view of the page.
    fn view(&self, hash: &str) {
        self.browser.eval(&format!("location.hash = {}", json!(hash)));
    }

    /// Opens a view anew, as from a link that somebody sent.
    fn visit(&self, hash: &str) {
        let origin = self.browser.eval("return location.origin");
        self.browser.go("about:blank");
        self.browser.go(&format!("{}/{hash}", origin.as_str().expect("an origin")));
    }

    /// The address of the conversation that is shown, once it has one.
    fn conversation(&self) -> String {
        let hash = self.browser.until("location.hash.startsWith('#/s/') && location.hash");
        hash.as_str().expect("an address").to_owned()
    }

    /// The id of the last turn that is shown.
    fn turn(&self) -> String {
        let id =
            self.browser.until("[...document.querySelectorAll('.turn')].at(-1)?.id.replace('turn-', '')");
        id.as_str().expect("an id").to_owned()
    }

    /// Waits until the last turn that is shown has ended.
    fn ended(&self) {
        self.browser.until(
            "[...document.querySelectorAll('.turn')].at(-1)?.querySelector('.meta .actions')?.textContent.includes('Retry')",
        );
    }
}

/// Keys, as WebDriver writes them.
const ENTER: char = '\u{e007}';
const ESCAPE: char = '\u{e00c}';
const TAB: char = '\u{e004}';
const DOWN: char = '\u{e015}';
