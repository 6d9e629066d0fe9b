//! Addresses that models and pages give: what form one must have before anybody is asked for it.

use drupe_extension_api::Fault;
use url::{Host, Url};

use crate::{clean, reach::AllowList};

/// The longest address: as long as common servers take.
pub const LONGEST: usize = 8192;

/// Names that mean this machine or its network, whatever a resolver makes of them. The first ones are those of
/// systems' files of hosts; the last ones of local networks (RFC 6761, RFC 6762, ICANN's `internal`).
const LOCAL_NAMES: &[&str] = &[
    "localhost",
    "localdomain",
    "localhost4",
    "localhost6",
    "ip6-localhost",
    "ip6-loopback",
    "broadcasthost",
    "local",
    "internal",
    "intranet",
    "lan",
    "home.arpa",
];

/// Reads an address and refuses what is not read from, by its form alone.
pub fn parse(text: &str, allowed: &AllowList) -> Result<Url, Fault> {
    let text = text.trim();
    if text.len() > LONGEST {
        return Err(Fault::invalid(format!("the address has {} bytes, the limit is {LONGEST}", text.len())));
    }
    let url = Url::parse(text).map_err(|error| {
        Fault::invalid(format!("`{}` is not an address: {error}", clean::line(text, 200)))
            .help("a whole address, such as https://example.org/page")
    })?;
    check(url, Some(text), allowed)
}

/// The address to which another one leads.
pub fn join(base: &Url, location: &str, allowed: &AllowList) -> Result<Url, Fault> {
    let shown = clean::line(location, 200);
    let url = base.join(location).map_err(|error| {
        Fault::denied(format!("`{base}` leads to `{shown}`, which is not an address: {error}"))
    })?;
    // One that is relative has the checked host of its base, and is not written out.
    let slashes = location.trim_start().bytes().take_while(|byte| matches!(byte, b'/' | b'\\')).count();
    let names_a_host = slashes >= 2 || Url::parse(location).is_ok();
    let written = names_a_host.then_some(location);
    if base.scheme() == "https" && url.scheme() == "http" {
        return Err(Fault::denied(format!(
            "`{base}` leads to `{shown}`: from https to http is not followed"
        )));
    }
    check(url, written, allowed)
}

fn check(url: Url, written: Option<&str>, allowed: &AllowList) -> Result<Url, Fault> {
    let refused = |why: String| Err(Fault::denied(format!("`{}` is not read: {why}", shown(&url))));
    if !matches!(url.scheme(), "http" | "https") {
        return refused(format!("only http and https are, not {}", clean::line(url.scheme(), 40)));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refused("it holds a user's name or a password".to_owned());
    }
    if url.port() == Some(0) {
        return refused("there is no port 0".to_owned());
    }
    match url.host() {
        None => return refused("it names no host".to_owned()),
        Some(Host::Ipv4(address)) => {
            // Numbers of another base, fewer parts: whoever writes those wants to be misread by somebody.
            let plain = address.to_string();
            if written.is_some_and(|written| !written.contains(&plain)) {
                return refused(format!("it is another spelling of {plain}"));
            }
        }
        Some(Host::Ipv6(_)) => {}
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_owned();
            let local = |local: &str| {
                name == local || name.strip_suffix(local).is_some_and(|rest| rest.ends_with('.'))
            };
            if name.is_empty() {
                return refused("it names no host".to_owned());
            }
            if LOCAL_NAMES.iter().any(|entry| local(entry)) && !allowed.host(&name) {
                return refused(format!("`{name}` is a name of this machine or its network"));
            }
            // One spelling for the list of the operator, the certificate and the memory.
            let mut plain = url.clone();
            if plain.set_host(Some(&name)).is_err() {
                return refused("its host has no name".to_owned());
            }
            plain.set_fragment(None);
            return Ok(plain);
        }
    }
    let mut url = url;
    url.set_fragment(None);
    Ok(url)
}

/// An address as a person is shown it: without what would be a password, and not too long.
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    clean::line(url.as_str(), 300)
}
