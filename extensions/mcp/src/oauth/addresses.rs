//! Addresses that a sign-in has to do with: which may be used at all, and where a server and those who sign people in for it
//! publish what they are. Pure.

use std::net::IpAddr;

use drupe_extension_api::Fault;
use url::{Host, Url};

/// Whether an address is one of this machine.
pub fn is_local(address: &Url) -> bool {
    match address.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => IpAddr::from(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => {
            IpAddr::from(ip).is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
        }
        None => false,
    }
}

/// An address that somebody else named, where it may be asked: `https`, or one of this machine where the server is of this
/// machine too. A server elsewhere must not make us speak with what listens here.
pub fn usable(what: &str, named: &str, server: &Url) -> Result<Url, Fault> {
    let refused = |why: &str| {
        let shown: String = named.chars().filter(|c| !c.is_control()).take(256).collect();
        Fault::denied(format!("{what} is `{shown}`, which {why}"))
            .help("the server or whoever signs people in for it has to mend that")
    };
    let address = Url::parse(named).map_err(|_| refused("is no address"))?;
    let local = is_local(&address);
    if !(address.scheme() == "https" || address.scheme() == "http" && local) {
        return Err(refused("is not `https`"));
    }
    if local && !is_local(server) {
        return Err(refused("leads to this machine, where the server is not"));
    }
    if address.host_str().is_none() || !address.username().is_empty() || address.password().is_some() {
        return Err(refused("has a name or a password in it"));
    }
    if address.fragment().is_some() {
        return Err(refused("has a fragment"));
    }
    Ok(address)
}

/// Whether a server whose address is this may be given tokens that were made for `resource`: the same, or something that it
/// is beneath on the same host.
pub fn is_within(server: &Url, resource: &Url) -> bool {
    if server.origin() != resource.origin()
        || resource.query().is_some_and(|_| server.query() != resource.query())
    {
        return false;
    }
    let (own, other) = (server.path().trim_end_matches('/'), resource.path().trim_end_matches('/'));
    own.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where a server may say by whom people are signed in for it, where its answer does not name a place.
pub fn of_resource(server: &Url) -> Vec<Url> {
    let root = well_known(server, "oauth-protected-resource", "");
    match server.path().trim_matches('/') {
        "" => vec![root],
        path => vec![well_known(server, "oauth-protected-resource", path), root],
    }
}

/// Where an issuer says what it is, in the order of the specification.
pub fn of_issuer(issuer: &Url) -> Vec<Url> {
    match issuer.path().trim_matches('/') {
        "" => vec![
            well_known(issuer, "oauth-authorization-server", ""),
            well_known(issuer, "openid-configuration", ""),
        ],
        path => {
            let mut appended = issuer.clone();
            appended.set_path(&format!("/{path}/.well-known/openid-configuration"));
            appended.set_query(None);
            vec![
                well_known(issuer, "oauth-authorization-server", path),
                well_known(issuer, "openid-configuration", path),
                appended,
            ]
        }
    }
}

fn well_known(of: &Url, name: &str, path: &str) -> Url {
    let mut address = of.clone();
    let path = if path.is_empty() { String::new() } else { format!("/{path}") };
    address.set_path(&format!("/.well-known/{name}{path}"));
    address.set_query(None);
    address.set_fragment(None);
    address
}

/// The address to which a browser is led when a person has signed in: a socket of this machine.
pub fn redirect(address: &str) -> Result<Url, Fault> {
    let parsed = Url::parse(address).ok().filter(|url| {
        url.scheme() == "http"
            && is_local(url)
            && url.port().is_some()
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
    });
    parsed.ok_or_else(|| {
        Fault::invalid("the address to come back to is none of this machine")
            .help("it has the form `http://127.0.0.1:PORT/callback`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("an address")
    }

    #[test]
    fn only_https_is_asked_and_nothing_of_this_machine_for_a_server_elsewhere() {
        let (far, near) = (url("https://mcp.example.org/mcp"), url("http://127.0.0.1:8000/mcp"));
        for (named, server, fits) in [
            ("https://a.example.org/x?y=1", &far, true),
            ("http://a.example.org/x", &far, false),
            ("http://127.0.0.1:1/x", &far, false),
            ("https://localhost/x", &far, false),
            ("https://[::ffff:127.0.0.1]/x", &far, false),
            ("http://[::1]:9/x", &near, true),
            ("https://a.example.org/", &near, true),
            ("http://a.example.org/", &near, false),
            ("ftp://127.0.0.1/", &near, false),
            ("javascript:alert(1)", &far, false),
            ("https://u:p@a.example.org/", &far, false),
            ("https://a.example.org/#x", &far, false),
            ("a.example.org", &far, false),
        ] {
            assert_eq!(usable("it", named, server).is_ok(), fits, "{named} for {server}");
        }
    }

    #[test]
    fn tokens_are_for_what_a_server_is_or_is_beneath() {
        let server = url("https://h.example/a/mcp");
        for (resource, fits) in [
            ("https://h.example/a/mcp", true),
            ("https://H.example/a/mcp/", true),
            ("https://h.example/a", true),
            ("https://h.example", true),
            ("https://h.example/a/mc", false),
            ("https://h.example/a/mcp/more", false),
            ("https://other.example/a/mcp", false),
            ("http://h.example/a/mcp", false),
            ("https://h.example:8443/a/mcp", false),
            ("https://h.example/a/mcp?tenant=2", false),
        ] {
            assert_eq!(is_within(&server, &url(resource)), fits, "{resource}");
        }
    }

    #[test]
    fn places_are_tried_in_the_order_of_the_specification() {
        let places = |of: Vec<Url>| of.iter().map(|url| url.path().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            places(of_issuer(&url("https://a.example/t1/"))),
            [
                "/.well-known/oauth-authorization-server/t1",
                "/.well-known/openid-configuration/t1",
                "/t1/.well-known/openid-configuration"
            ]
        );
        assert_eq!(of_issuer(&url("https://a.example")).len(), 2);
        assert_eq!(
            places(of_resource(&url("https://h.example/a/mcp?x=1"))),
            ["/.well-known/oauth-protected-resource/a/mcp", "/.well-known/oauth-protected-resource"]
        );
    }

    #[test]
    fn a_browser_is_led_back_to_this_machine_alone() {
        for (address, fits) in [
            ("http://127.0.0.1:4000/callback", true),
            ("http://127.0.0.1/callback", false),
            ("https://evil.example:1/callback", false),
            ("http://evil.example:1/callback", false),
            ("http://127.0.0.1:1/callback?x=1", false),
        ] {
            assert_eq!(redirect(address).is_ok(), fits, "{address}");
        }
    }
}
