//! Who asks: the token that a request bears, and what the daemon says of its bearer. It is asked before anything else of a
//! request is looked at.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, Method, header, request::Parts},
};
use drupe_extension_api::{
    Fault, FaultCode,
    control::{Whoami, method},
};

use crate::{
    failure::HttpFault,
    server::Server,
    visitors::{Visitor, reach},
};

/// The cookie of the page, which has a token for its value.
pub const COOKIE: &str = "drupe";

/// What the page sends with everything that changes something: a form of somebody else's page cannot.
pub const PAGE: &str = "x-drupe-request";

/// What clients of Anthropic's API send.
const API_KEY: &str = "x-api-key";

#[derive(Clone)]
pub struct Bearer {
    /// What the daemon knows them by.
    pub token: String,
    pub who: Whoami,
    /// Set where a site has signed them.
    pub visitor: Option<Visitor>,
}

impl FromRequestParts<Arc<Server>> for Bearer {
    type Rejection = HttpFault;

    async fn from_request_parts(parts: &mut Parts, server: &Arc<Server>) -> Result<Self, HttpFault> {
        let mut token = token(&parts.method, &parts.headers)?.to_owned();
        // A browser sends the cookie along to other ports of this machine as well, and asks nobody before it opens a
        // WebSocket.
        if shown(&parts.headers).is_none() && server.known.is_called_by_another(&parts.headers) {
            return Err(Fault::denied("a page of another origin needs a token of its own").into());
        }
        let visitor = server.embeds.admit(&token).transpose()?;
        if let Some(visitor) = &visitor {
            if !reach::is_open(parts.uri.path()) {
                return Err(Fault::denied("this path is not for visitors of a site").into());
            }
            token = visitor.token();
        }
        let who = server.host.control_for(Some(&token), method::WHOAMI, ()).await?;
        Ok(Self { token, who, visitor })
    }
}

/// The token that a request shows by itself, and not by the browser's cookie.
fn shown(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let authorized = text(header::AUTHORIZATION.as_str()).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    authorized.or_else(|| text(API_KEY)).filter(|token| !token.is_empty())
}

/// The token of a request.
fn token<'a>(method: &Method, headers: &'a HeaderMap) -> Result<&'a str, Fault> {
    if let Some(token) = shown(headers) {
        return Ok(token);
    }
    let Some(token) = cookie(headers) else {
        return Err(Fault::new(FaultCode::Unauthenticated, "the request bears no token")
            .help("send `Authorization: Bearer TOKEN`; `drupe token new NAME` makes one"));
    };
    if !method.is_safe() && !headers.contains_key(PAGE) {
        return Err(led());
    }
    Ok(token)
}

/// Refuses a `GET` that changes something where a page at another port of this machine may have led the browser to it: such a
/// one needs to embed an image. What a person enters or the page itself asks for, the browser marks
/// (https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header, 2026-11-24).
pub fn meant(headers: &HeaderMap) -> Result<(), Fault> {
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    let own = headers.contains_key(PAGE) || site.is_some_and(|site| ["none", "same-origin"].contains(&site));
    if own || shown(headers).is_some() { Ok(()) } else { Err(led()) }
}

fn led() -> Fault {
    Fault::denied(format!("a request with a cookie needs the header `{PAGE}`"))
}

/// The token in the page's cookie.
pub fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(name, value)| (name == COOKIE && !value.is_empty()).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &Method, given: &[(&'static str, &str)]) -> Result<String, FaultCode> {
        let pair = |(name, value): &(&'static str, &str)| {
            (name.parse().expect("a name"), value.parse().expect("a value"))
        };
        let headers: HeaderMap = given.iter().map(pair).collect();
        token(method, &headers).map(str::to_owned).map_err(|fault| fault.code)
    }

    #[test]
    fn a_token_comes_in_a_header_or_from_the_page_by_its_cookie() {
        for given in [
            ("authorization", "Bearer one"),
            ("authorization", "bearer  one"),
            ("x-api-key", "one"),
            ("cookie", "a=b; drupe=one; c=d"),
        ] {
            assert_eq!(of(&Method::GET, &[given]), Ok("one".into()), "{given:?}");
        }
        for given in [
            ("authorization", "Basic b25l"),
            ("authorization", "Bearer "),
            ("cookie", "drupe="),
            ("cookie", "xdrupe=one"),
        ] {
            assert_eq!(of(&Method::GET, &[given]), Err(FaultCode::Unauthenticated), "{given:?}");
        }
        assert_eq!(of(&Method::GET, &[]), Err(FaultCode::Unauthenticated));
    }

    #[test]
    fn what_changes_something_needs_more_than_a_cookie() {
        let cookie = ("cookie", "drupe=one");
        assert_eq!(of(&Method::POST, &[cookie]), Err(FaultCode::Denied));
        assert_eq!(of(&Method::DELETE, &[cookie]), Err(FaultCode::Denied));
        assert_eq!(of(&Method::POST, &[cookie, (PAGE, "1")]), Ok("one".into()));
        assert_eq!(of(&Method::POST, &[("authorization", "Bearer two"), cookie]), Ok("two".into()));
    }
}
