//! What a server and those who sign people in for it say of themselves. Pure.

use std::collections::BTreeSet;

use drupe_extension_api::prelude::*;
use url::Url;

use super::addresses::{is_within, usable};
use crate::definition::shown;

/// Scopes that are asked for at most, and characters of each.
const SCOPES: usize = 128;
const SCOPE: usize = 256;

/// What stands in `WWW-Authenticate` for bearers of tokens.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BearerChallenge {
    pub resource_metadata: Option<String>,
    pub scope: Option<String>,
}

impl BearerChallenge {
    /// Reads a header, which may hold challenges of several schemes.
    pub fn read(header: &str) -> Self {
        let mut challenge = Self::default();
        let mut bearer = false;
        let mut rest = header.trim_start();
        while !rest.is_empty() {
            let end = rest.find(|c: char| "=, \t".contains(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let after = after.trim_start_matches([' ', '\t']);
            let Some(value) = after.strip_prefix('=').filter(|_| !word.is_empty()) else {
                if !word.is_empty() {
                    bearer = word.eq_ignore_ascii_case("bearer");
                }
                rest = after.trim_start_matches([',', ' ', '\t']);
                // A `=` without a name before it would be found again for ever.
                rest = rest.strip_prefix('=').unwrap_or(rest);
                continue;
            };
            let (value, after) = quoted(value.trim_start());
            rest = after.trim_start_matches([',', ' ', '\t']);
            match word.to_ascii_lowercase().as_str() {
                "resource_metadata" if bearer => drop(challenge.resource_metadata.get_or_insert(value)),
                "scope" if bearer => drop(challenge.scope.get_or_insert(value)),
                _ => {}
            }
        }
        challenge
    }
}

/// A value, quoted or not, and what comes after it.
fn quoted(text: &str) -> (String, &str) {
    let Some(inner) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = inner.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &inner[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

/// Names of scopes, as one text holds them. What cannot be one is left out.
pub fn scopes<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    let usual = |c: u8| c == 0x21 || (0x23..=0x5b).contains(&c) || (0x5d..=0x7e).contains(&c);
    let names = names.into_iter().flat_map(str::split_ascii_whitespace);
    names
        .filter(|name| name.len() <= SCOPE && name.bytes().all(usual))
        .take(SCOPES)
        .map(str::to_owned)
        .collect()
}

/// By whom people are signed in for a server (RFC 9728).
#[derive(Debug, Deserialize)]
pub struct ResourceFacts {
    resource: String,
    #[serde(default)]
    pub authorization_servers: Vec<String>,
    #[serde(default)]
    pub scopes_supported: Option<Vec<String>>,
}

impl ResourceFacts {
    /// For what tokens are made: the server itself, or what it is beneath.
    pub fn resource(&self, server: &Url) -> Result<String, Fault> {
        let fits = Url::parse(&self.resource)
            .is_ok_and(|resource| resource.fragment().is_none() && is_within(server, &resource));
        if fits {
            return Ok(self.resource.clone());
        }
        let message = format!(
            "the server at `{server}` says that its tokens are for `{}`, which it is not",
            shown(&self.resource)
        );
        Err(Fault::denied(message).help("the server has to mend that; no token is asked for"))
    }
}

/// Who signs people in, as they say it of themselves (RFC 8414, OpenID Connect Discovery).
#[derive(Debug, Deserialize)]
pub struct IssuerFacts {
    pub issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    #[serde(default)]
    registration_endpoint: Option<String>,
    #[serde(default)]
    revocation_endpoint: Option<String>,
    #[serde(default)]
    code_challenge_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    response_types_supported: Option<Vec<String>>,
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub scopes_supported: Option<Vec<String>>,
    /// Whether each answer of theirs says from whom it is (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

/// The addresses of an issuer, each of which may be asked.
#[derive(Debug)]
pub struct IssuerAddresses {
    pub authorization: Url,
    pub token: Url,
    pub registration: Option<Url>,
    pub revocation: Option<Url>,
}

impl IssuerFacts {
    /// Looks at what they say, and gives their addresses. `issuer` is the name by which they were looked for.
    pub fn check(&self, issuer: &str, server: &Url) -> Result<IssuerAddresses, Fault> {
        let refused = |why: String| Err(Fault::denied(why).help("whoever signs people in has to mend that"));
        // As it stands: what only looks alike is somebody else.
        if self.issuer != issuer {
            return refused(format!("what is said at `{issuer}` is of the issuer `{}`", shown(&self.issuer)));
        }
        let has = |of: &Option<Vec<String>>, name: &str| {
            of.as_ref().is_some_and(|all| all.iter().any(|one| one == name))
        };
        if !has(&self.code_challenge_methods_supported, "S256") {
            return refused(format!("`{issuer}` does not say that it protects codes by PKCE with S256"));
        }
        if self.response_types_supported.is_some() && !has(&self.response_types_supported, "code") {
            return refused(format!("`{issuer}` gives no codes"));
        }
        let optional = |what: &str, named: &Option<String>| {
            named.as_ref().map(|named| usable(what, named, server)).transpose()
        };
        Ok(IssuerAddresses {
            authorization: usable("the address to sign in at", &self.authorization_endpoint, server)?,
            token: usable("the address of tokens", &self.token_endpoint, server)?,
            registration: optional("the address of registrations", &self.registration_endpoint)?,
            revocation: optional("the address of revocations", &self.revocation_endpoint)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_challenge_is_read_whatever_stands_beside_it() {
        let read = |header: &str| {
            let BearerChallenge { resource_metadata, scope } = BearerChallenge::read(header);
            (resource_metadata.unwrap_or_default(), scope.unwrap_or_default())
        };
        let of = |metadata: &str, scope: &str| (metadata.to_owned(), scope.to_owned());
        assert_eq!(read("Bearer"), of("", ""));
        assert_eq!(
            read(
                r#"Basic realm="a, Bearer scope=x", bearer scope="a b", resource_metadata="https://x/y", error=e"#
            ),
            of("https://x/y", "a b")
        );
        assert_eq!(read(r#"Bearer scope="a\"b"#), of("", "a\"b"));
        assert_eq!(read(r#"DPoP scope="no""#), of("", ""));
        for strange in ["", "=", "===,,,", "Bearer =", "Bearer scope", "Bearer scope=", "\"", "Bearer ,=,= x"]
        {
            BearerChallenge::read(strange);
        }
    }

    #[test]
    fn scopes_are_what_the_protocol_can_carry() {
        let named: Vec<String> = scopes(["b a", "a", "b\u{e4}d", "q\"", ""]).into_iter().collect();
        assert_eq!(named, ["a", "b"]);
    }

    #[test]
    fn an_issuer_is_who_it_was_looked_for_as_and_protects_codes() {
        let server = Url::parse("https://mcp.example/mcp").expect("an address");
        let good = json!({"issuer": "https://a.example", "authorization_endpoint": "https://a.example/authorize",
            "token_endpoint": "https://a.example/token", "code_challenge_methods_supported": ["S256"]});
        let check = |change: Value| {
            let mut facts = good.clone();
            for (key, value) in change.as_object().cloned().unwrap_or_default() {
                facts[key] = value;
            }
            let facts: IssuerFacts = serde_json::from_value(facts).expect("facts");
            facts.check("https://a.example", &server).map(drop).map_err(|fault| fault.message)
        };
        assert_eq!(check(json!({})), Ok(()));
        for (change, says) in [
            (json!({"issuer": "https://a.example/"}), "of the issuer"),
            (json!({"issuer": "https://b.example"}), "of the issuer"),
            (json!({"code_challenge_methods_supported": null}), "PKCE"),
            (json!({"code_challenge_methods_supported": ["plain"]}), "PKCE"),
            (json!({"response_types_supported": ["token"]}), "no codes"),
            (json!({"token_endpoint": "http://a.example/token"}), "not `https`"),
            (json!({"authorization_endpoint": "javascript:alert(1)"}), "not `https`"),
            (json!({"registration_endpoint": "http://127.0.0.1/r"}), "this machine"),
            (json!({"revocation_endpoint": "file:///etc/passwd"}), "not `https`"),
        ] {
            let said = check(change.clone()).expect_err(says);
            assert!(said.contains(says), "{change}: {said}");
        }
    }

    use serde_json::Value;
}
