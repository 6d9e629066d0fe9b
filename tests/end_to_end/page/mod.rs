//! The web page in a real browser. Without one the tests say so and pass: everybody can run the others.

mod accessible;
mod browser;
mod embedded;
mod talks;

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
    let browser = Browser::open(window)?;
    let server = ModelServer::obedient();
    let door_of_it = "extensions:\n  http: {address: \"127.0.0.1:0\"}\n";
    let mut daemon = Daemon::home(&(server.config() + door_of_it));
    daemon.variable("DRUPE_EXTENSIONS__HTTP__ENABLED", "true");
    daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
    daemon.write(
        "extensions/haiku.md",
        "---\ndescription: Writes haikus.\nusage: rust\n---\nYou write haikus.\n",
    );
    daemon.run();
    door(&daemon);
    let scene = Scene { browser, daemon, _server: server };
    scene.browser.go(&scene.link());
    scene.browser.until("document.querySelector('.composer textarea')");
    Some(scene)
}

impl Scene {
    /// A link that signs a browser in.
    fn link(&self) -> String {
        self.daemon.says(&["open"]).trim().to_owned()
    }

    /// Writes a message and sends it.
    fn send(&self, text: &str) {
        self.browser.write(".composer textarea", &format!("{text}{ENTER}"));
    }

    /// Opens a view of the page.
    fn view(&self, hash: &str) {
        self.browser.eval(&format!("location.hash = {}", serde_json::json!(hash)));
    }
}

/// Keys, as WebDriver writes them.
const ENTER: char = '\u{e007}';
const ESCAPE: char = '\u{e00c}';
const DOWN: char = '\u{e015}';
