//! The files of the page, carried by the program.

use std::{collections::HashMap, fmt::Write as _, sync::LazyLock};

use sha2::{Digest, Sha256};

/// A file of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    pub body: &'static [u8],
    pub content_type: &'static str,
    /// Names the content: another content has another one. In quotation marks, as the header has it.
    pub etag: &'static str,
}

/// The file at a path of the page, such as `/` or `/page/js/main.js`. Only what is listed here exists: there are no
/// folders, and no way of writing a path leads elsewhere.
pub fn asset(path: &str) -> Option<Asset> {
    let name = if path == "/" { "index.html" } else { path.strip_prefix("/page/")? };
    ASSETS.get(name).copied()
}

/// The page's own code and looks, by their paths below `/page/`.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../files/", $name)))),*]
    };
}

const FILES: &[(&str, &[u8])] = files![
    "css/base.css",
    "css/conversation.css",
    "css/frame.css",
    "css/timeline.css",
    "css/views.css",
    "css/work.css",
    "embed/chat.css",
    "embed/chat.js",
    "embed/embed.js",
    "embed/index.html",
    "icon.svg",
    "index.html",
    "js/agents.js",
    "js/approval.js",
    "js/approvals.js",
    "js/bars.js",
    "js/beside.js",
    "js/call.js",
    "js/changes.js",
    "js/composer.js",
    "js/confirm.js",
    "js/control.js",
    "js/conversation.js",
    "js/daemon.js",
    "js/dom.js",
    "js/extensions.js",
    "js/fact.js",
    "js/files.js",
    "js/format.js",
    "js/glance.js",
    "js/inputs.js",
    "js/inspect.js",
    "js/inspector.js",
    "js/keys.js",
    "js/letters.js",
    "js/main.js",
    "js/markdown.js",
    "js/mention.js",
    "js/memory.js",
    "js/meters.js",
    "js/plot.js",
    "js/router.js",
    "js/schedule-form.js",
    "js/schedules.js",
    "js/sessions.js",
    "js/stream.js",
    "js/theme-switch.js",
    "js/theme.js",
    "js/timeline.js",
    "js/turn-view.js",
    "js/turns.js",
    "js/usage.js",
    "js/who.js",
    "js/why.js",
    "js/work.js",
    "sign-in.html",
];

static ASSETS: LazyLock<HashMap<&'static str, Asset>> = LazyLock::new(|| {
    let made = FILES.iter().map(|(name, body)| {
        let asset = Asset { body, content_type: content_type(name), etag: etag(body) };
        (*name, asset)
    });
    made.collect()
});

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// Lives as long as the program, as the file that it names does: it is made once for each.
fn etag(body: &[u8]) -> &'static str {
    let hash = Sha256::digest(body);
    let mut text = String::from("\"");
    for byte in hash.iter().take(16) {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('"');
    text.leak()
}

#[cfg(test)]
#[path = "assets_tests.rs"]
mod tests;
