//! The web page of drupe: its files, the markdown that it shows, and the policy under which a browser runs it.
//!
//! The server of the page uses it: [`asset`] for `/` and everything below `/page/`, [`markdown`] for
//! `/page/markdown`, and [`CONTENT_SECURITY_POLICY`] as a header of every answer that is a page.
//!
//! It knows no server and no daemon. It opens nothing, asks nobody and keeps nothing: what it gives depends on what it is
//! given alone. It must never let a text become markup other than through [`markdown`].

mod assets;
mod markdown;

pub use assets::{Asset, asset};
pub use markdown::markdown;

/// What the browser may load and run for the page. Nothing comes from another host, no script or style stands in the
/// markup, nobody can show the page in a frame, and a script cannot make markup of a text but in the one place that has
/// the policy `drupe-markdown`.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; \
     require-trusted-types-for 'script'; trusted-types drupe-markdown";

/// The same for a page that those of some origins may show in a frame.
pub fn policy_in_frames_of(origins: &[String]) -> String {
    let ancestors = format!("frame-ancestors {}", origins.join(" "));
    CONTENT_SECURITY_POLICY.replace("frame-ancestors 'none'", &ancestors)
}
