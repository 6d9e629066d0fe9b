//! Which requests a browser may have been led to send: they are refused before anything else is looked at.
//!
//! A page of somebody else can have a browser connect to this machine. It cannot choose the `Host` that is sent then, nor the
//! `Origin`: so a request that names another host came by a name that somebody made point here, and one of another origin
//! from a page of theirs.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use drupe_extension_api::Fault;

use crate::{failure::HttpFault, server::Server};

/// The hosts under which the server is reached, and the origins of pages that may call it.
pub struct Known {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Known {
    /// Those of an address, and what the operator names.
    pub fn new(address: SocketAddr, hosts: &[String], origins: &[String]) -> Result<Self, Fault> {
        let port = address.port();
        let mut known = vec![address.to_string()];
        if address.ip().is_loopback() {
            known.extend([format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")]);
        }
        known.extend(hosts.iter().map(|host| host.to_ascii_lowercase()));
        let mut allowed = Vec::new();
        for host in &known {
            allowed.extend([format!("http://{host}"), format!("https://{host}")]);
        }
        for origin in origins {
            allowed.push(of_a_page(origin)?);
        }
        Ok(Self { hosts: known, origins: allowed })
    }

    /// Whether pages of an origin that may call the server are not its own.
    fn is_foreign(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        !self.hosts.iter().any(|host| origin.split_once("://").is_some_and(|(_, from)| from == host))
    }

    /// Whether it is a page of another origin that calls, which may be one of those that the operator allows.
    pub fn is_called_by_another(&self, headers: &HeaderMap) -> bool {
        headers.get(header::ORIGIN).is_some_and(|origin| self.is_foreign(origin))
    }

    fn admits(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Fault> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (host, another) = (hosts.next(), hosts.next());
        let named = host.and_then(|host| host.to_str().ok()).map(str::to_ascii_lowercase);
        let known = named.as_ref().is_some_and(|host| self.hosts.contains(host));
        // A request for a proxy names the host once more.
        let elsewhere =
            uri.authority().is_some_and(|host| !self.hosts.contains(&host.as_str().to_ascii_lowercase()));
        if !known || another.is_some() || elsewhere {
            return Err(Fault::denied(
                "this server is not known under the name that the request has as its `Host`",
            )
            .help("names besides its address stand in `extensions.http.hosts` of drupe.yaml"));
        }
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
            if !self.origins.contains(&origin) {
                return Err(Fault::denied("pages of this origin may not call the server")
                    .help("others stand in `extensions.http.origins` of drupe.yaml"));
            }
        }
        Ok(())
    }
}

/// An origin as browsers write it. It stands in headers, so it has no sign that ends something there.
pub fn of_a_page(text: &str) -> Result<String, Fault> {
    let origin = text.to_ascii_lowercase();
    let host =
        ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme)).unwrap_or_default();
    let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(sound) {
        return Err(Fault::invalid(format!("`{text}` under `origins` is no origin"))
            .help("write it as `https://app.example.org`, without a path"));
    }
    Ok(origin)
}

/// Lets a request through that this server may answer.
pub async fn check(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    match server.known.admits(request.uri(), request.headers()) {
        Ok(()) => {
            let headers = request.headers();
            let foreign =
                headers.get(header::ORIGIN).filter(|_| server.known.is_called_by_another(headers)).cloned();
            let asks_first = request.method() == Method::OPTIONS
                && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
            let response = match &foreign {
                Some(_) if asks_first => StatusCode::NO_CONTENT.into_response(),
                _ => next.run(request).await,
            };
            sealed(response, foreign)
        }
        Err(fault) => HttpFault::from(fault).into_response(),
    }
}

/// What no answer may become in a browser: something else than it says, or a part of somebody else's page.
/// A page that the operator allows may read it: with a token of its own, never with the cookie of ours.
fn sealed(mut response: Response, foreign: Option<HeaderValue>) -> Response {
    let headers = response.headers_mut();
    let mut tell = |name: &'static str, value| headers.insert(name, value);
    tell("x-content-type-options", HeaderValue::from_static("nosniff"));
    tell("referrer-policy", HeaderValue::from_static("no-referrer"));
    let Some(origin) = foreign else {
        // But what is made for pages of others says so.
        headers.entry("cross-origin-resource-policy").or_insert(HeaderValue::from_static("same-origin"));
        return response;
    };
    tell("access-control-allow-origin", origin);
    tell("access-control-allow-methods", HeaderValue::from_static("GET, POST"));
    // The star stands for all but this one.
    tell("access-control-allow-headers", HeaderValue::from_static("authorization, *"));
    tell("access-control-expose-headers", HeaderValue::from_static("*"));
    tell("access-control-max-age", HeaderValue::from_static("600"));
    tell("vary", HeaderValue::from_static("Origin"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_request_is_let_through_under_a_known_name_and_from_a_known_page_alone() {
        let address = "127.0.0.1:7878".parse().expect("an address");
        let (hosts, origins) = (["Drupe.example.org".to_owned()], ["https://app.example.org".to_owned()]);
        let known = Known::new(address, &hosts, &origins).expect("it is well-formed");
        let (host, origin) = (header::HOST, header::ORIGIN);
        for (given, admitted) in [
            (vec![(host.clone(), "127.0.0.1:7878")], true),
            (vec![(host.clone(), "LOCALHOST:7878")], true),
            (vec![(host.clone(), "drupe.example.org")], true),
            (vec![], false),
            (vec![(host.clone(), "localhost")], false),
            (vec![(host.clone(), "localhost:80")], false),
            (vec![(host.clone(), "evil.example.org:7878")], false),
            (vec![(host.clone(), "localhost:7878"), (origin.clone(), "http://localhost:7878")], true),
            (vec![(host.clone(), "localhost:7878"), (origin.clone(), "https://app.example.org")], true),
            (vec![(host.clone(), "localhost:7878"), (origin.clone(), "https://app.example.org.evil")], false),
            (vec![(host.clone(), "localhost:7878"), (origin.clone(), "null")], false),
            (vec![(host, "localhost:7878"), (origin, "http://localhost:9999")], false),
        ] {
            assert_eq!(known.admits(&Uri::from_static("/"), &headers(&given)).is_ok(), admitted, "{given:?}");
        }
        let local = headers(&[(header::HOST, "localhost:7878")]);
        assert!(known.admits(&Uri::from_static("http://localhost:7878/"), &local).is_ok());
        assert!(known.admits(&Uri::from_static("http://evil.example.org/"), &local).is_err());
        let mut twice = local;
        twice.append(header::HOST, HeaderValue::from_static("localhost:7878"));
        assert!(known.admits(&Uri::from_static("/"), &twice).is_err());
        for wrong in ["null", "app.example.org", "https://app.example.org/", "*"] {
            assert!(Known::new(address, &[], &[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
