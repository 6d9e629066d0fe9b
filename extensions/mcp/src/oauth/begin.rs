//! The beginning of a sign-in: who signs people in for a server is found, drupe is made known there, and the address to visit
//! is made. And what a browser brings back.

use std::{collections::BTreeSet, sync::Arc};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use drupe_extension_api::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::Url;

use super::{
    PendingSignIn, SignIns, addresses,
    kept::{ClientProof, OauthClient, SignedIn},
    lock,
    metadata::{BearerChallenge, IssuerAddresses, IssuerFacts, ResourceFacts, scopes},
    parameters, web,
};
use crate::{config::ServerSettings, definition::shown};

/// Issuers of one server that are tried.
const ISSUERS: usize = 8;

/// Bytes of what a browser brings back.
const RESPONSE: usize = 16 << 10;

/// What a browser brings back. Nothing of it is shown before it is known from whom it is.
pub struct SignInAnswer {
    pub state: Option<String>,
    pub issuer: Option<String>,
    code: Option<String>,
    error: Option<String>,
    description: Option<String>,
}

impl SignInAnswer {
    pub fn read(response: &str) -> Result<Self, Fault> {
        let unreadable = |why: &str| Fault::invalid(format!("what came back {why}"));
        let response = response.trim();
        if response.len() > RESPONSE {
            return Err(unreadable("is too long"));
        }
        let query = response.split_once('?').map_or(response, |(_, query)| query);
        let query = query.split_once('#').map_or(query, |(query, _)| query);
        let mut answer = Self { state: None, issuer: None, code: None, error: None, description: None };
        for (name, value) in parameters(query) {
            let place = match name.as_str() {
                "state" => &mut answer.state,
                "iss" => &mut answer.issuer,
                "code" => &mut answer.code,
                "error" => &mut answer.error,
                "error_description" => &mut answer.description,
                _ => continue,
            };
            if place.replace(value).is_some() {
                return Err(unreadable("says something twice"));
            }
        }
        if answer.state.is_none() && answer.code.is_none() && answer.error.is_none() {
            return Err(unreadable("is no answer of a sign-in")
                .help("give the whole address that the browser was led to, from `http://` to its end"));
        }
        Ok(answer)
    }

    pub fn code(&self) -> Result<&str, Fault> {
        match (&self.code, &self.error) {
            (Some(code), None) if !code.is_empty() => Ok(code),
            (_, Some(error)) => {
                let why = web::said(error, self.description.as_deref());
                Err(Fault::denied(format!("signing in was refused: {why}")))
            }
            _ => Err(Fault::invalid("what came back has no code")),
        }
    }
}

/// 256 bits that nobody can guess, as 43 characters.
fn random() -> Result<String, Fault> {
    let mut bytes = [0; 32];
    let provider = rustls::crypto::ring::default_provider();
    provider
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| Fault::internal("the system gives no random bytes"))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

impl SignIns {
    /// Begins: the address that a person visits, after which they are led to `redirect`. What another one of this server was
    /// at is over.
    pub async fn begin(
        self: &Arc<Self>,
        name: &str,
        server: &ServerSettings,
        redirect: &str,
        more: &[String],
    ) -> Result<Value, Fault> {
        let redirect = addresses::redirect(redirect)?;
        let (address, url) = address_of(name, server)?;
        let web = self.web()?;
        let challenge = web::challenge(web, &url, server).await?;
        let challenge = BearerChallenge::read(challenge.as_deref().unwrap_or_default());
        let facts = self.resource(&url, &challenge).await?;
        let resource = facts.resource(&url)?;
        let (issuer, addresses) = self.issuer(&url, server, &facts).await?;
        let asked = self.asked_scopes(name, server, &challenge, &facts, &issuer, more);
        let client = self.client(server, &issuer, &addresses, &redirect, &asked).await?;
        let (state, verifier) = (random()?, random()?);
        let proof = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let mut visit = addresses.authorization.clone();
        let text = asked.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        {
            let mut pairs = visit.query_pairs_mut();
            pairs.append_pair("response_type", "code").append_pair("client_id", &client.id);
            pairs.append_pair("redirect_uri", redirect.as_str()).append_pair("state", &state);
            pairs.append_pair("code_challenge", &proof).append_pair("code_challenge_method", "S256");
            pairs.append_pair("resource", &resource);
            if !text.is_empty() {
                pairs.append_pair("scope", &text);
            }
        }
        let told = json!({"address": visit.as_str(), "issuer": issuer.issuer, "resource": resource, "scopes": asked});
        let pending = PendingSignIn {
            state,
            verifier,
            redirect: redirect.into(),
            began: self.now(),
            named: issuer.authorization_response_iss_parameter_supported,
            scopes: asked,
            signed: SignedIn {
                url: address.to_owned(),
                resource,
                issuer: issuer.issuer,
                token_endpoint: addresses.token.into(),
                revocation_endpoint: addresses.revocation.map(Into::into),
                client,
                access_token: String::new(),
                refresh_token: None,
                received_at: 0,
                expires_at: None,
                scopes: Vec::new(),
            },
        };
        lock(&self.pending).insert(name.to_owned(), pending);
        Ok(told)
    }

    /// What a server says of who signs people in for it.
    async fn resource(&self, url: &Url, challenge: &BearerChallenge) -> Result<ResourceFacts, Fault> {
        let places = match &challenge.resource_metadata {
            Some(named) => vec![addresses::usable("what the server names as its metadata", named, url)?],
            None => addresses::of_resource(url),
        };
        for place in &places {
            if let Some(facts) = web::published::<ResourceFacts>(self.web()?, place).await? {
                return Ok(facts);
            }
        }
        let places: Vec<&str> = places.iter().map(Url::as_str).collect();
        let message =
            format!("the server does not say who signs people in for it, at {}", places.join(" or "));
        Err(Fault::not_found(message).help("give it a token under `headers`, if it takes one"))
    }

    /// Who signs people in, the first of those that the server names of whom anything is known.
    async fn issuer(
        &self,
        url: &Url,
        server: &ServerSettings,
        facts: &ResourceFacts,
    ) -> Result<(IssuerFacts, IssuerAddresses), Fault> {
        let named = &facts.authorization_servers;
        let wanted = server.oauth.issuer.as_ref();
        let listed = || {
            named.iter().take(ISSUERS).map(|one| format!("`{}`", shown(one))).collect::<Vec<_>>().join(", ")
        };
        let candidates: Vec<&String> =
            named.iter().filter(|one| wanted.is_none_or(|wanted| wanted == *one)).take(ISSUERS).collect();
        if let (true, Some(wanted)) = (candidates.is_empty(), wanted) {
            let message = format!("the server names {}, and not `{wanted}` of `oauth.issuer`", listed());
            return Err(Fault::denied(message).help("say in `oauth.issuer` with whom drupe is registered"));
        }
        if server.oauth.client_id.is_some() && wanted.is_none() {
            let message =
                format!("`oauth.client_id` does not say of whom it is; the server names {}", listed());
            return Err(
                Fault::invalid(message).help("name the one with whom drupe is registered in `oauth.issuer`")
            );
        }
        for issuer in candidates {
            let address = addresses::usable("who signs people in", issuer, url)?;
            for place in addresses::of_issuer(&address) {
                if let Some(facts) = web::published::<IssuerFacts>(self.web()?, &place).await? {
                    let addresses = facts.check(issuer, url)?;
                    return Ok((facts, addresses));
                }
            }
        }
        Err(Fault::not_found(format!("nothing is published of who signs people in: {}", listed())))
    }

    /// What is asked for: what the operator or the server says, and what there was before, so that nothing is lost by it.
    fn asked_scopes(
        &self,
        name: &str,
        server: &ServerSettings,
        challenge: &BearerChallenge,
        facts: &ResourceFacts,
        issuer: &IssuerFacts,
        more: &[String],
    ) -> BTreeSet<String> {
        let configured = &server.oauth.scopes;
        let mut asked = match (configured.is_empty(), &challenge.scope) {
            (false, _) => scopes(configured.iter().map(String::as_str)),
            (true, Some(scope)) => scopes([&**scope]),
            (true, None) => scopes(facts.scopes_supported.iter().flatten().map(String::as_str)),
        };
        asked.extend(lock(&self.account(name).known).wanted.iter().cloned());
        asked.extend(scopes(more.iter().map(String::as_str)));
        asked.extend(self.signed(name, server).into_iter().flat_map(|signed| signed.scopes));
        // By it some give what tokens are renewed with. Where no scope is named, all that is usual is given.
        let offline = "offline_access";
        if !asked.is_empty() && issuer.scopes_supported.iter().flatten().any(|scope| scope == offline) {
            asked.insert(offline.to_owned());
        }
        asked
    }

    /// Who we are to an issuer.
    async fn client(
        &self,
        server: &ServerSettings,
        issuer: &IssuerFacts,
        addresses: &IssuerAddresses,
        redirect: &Url,
        asked: &BTreeSet<String>,
    ) -> Result<OauthClient, Fault> {
        if let Some(id) = &server.oauth.client_id {
            let secret = server.oauth.client_secret.clone();
            let known = issuer.token_endpoint_auth_methods_supported.as_deref();
            let takes = |method: &str| known.is_none_or(|known| known.iter().any(|one| one == method));
            let proof = match &secret {
                None => ClientProof::None,
                Some(_) if takes("client_secret_basic") => ClientProof::Basic,
                Some(_) if takes("client_secret_post") => ClientProof::Post,
                Some(_) => {
                    let message =
                        format!("`{}` takes no secret of a client as drupe can show it", issuer.issuer);
                    return Err(Fault::unsupported(&message));
                }
            };
            return Ok(OauthClient { id: id.clone(), secret, proof, configured: true });
        }
        let Some(address) = &addresses.registration else {
            let message = format!("`{}` does not let programs register themselves", issuer.issuer);
            return Err(Fault::new(FaultCode::NotConfigured, message)
                .help("register drupe there by hand and name it in `oauth.client_id` and `oauth.issuer` of the server"));
        };
        let mut wanted = json!({
            "client_name": "drupe",
            "redirect_uris": [redirect.as_str()],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "native",
        });
        if !asked.is_empty() {
            wanted["scope"] = asked.iter().map(String::as_str).collect::<Vec<_>>().join(" ").into();
        }
        let registered = web::register(self.web()?, address, &wanted).await?;
        let secret = registered.client_secret.filter(|secret| !secret.is_empty());
        let proof = match (&secret, registered.token_endpoint_auth_method.as_deref()) {
            (None, _) | (_, Some("none")) => ClientProof::None,
            (Some(_), Some("client_secret_post")) => ClientProof::Post,
            (Some(_), _) => ClientProof::Basic,
        };
        Ok(OauthClient { id: registered.client_id, secret, proof, configured: false })
    }
}

/// The address of a server that can be signed in to.
fn address_of<'a>(name: &str, server: &'a ServerSettings) -> Result<(&'a str, Url), Fault> {
    let wrong = |why: &str, help: &'static str| {
        Err(Fault::invalid(format!("the MCP server `{name}` {why}")).help(help))
    };
    let Some(address) = &server.url else {
        return wrong(
            "is a program",
            "only one with a `url` is signed in to; give a program its token in `env`",
        );
    };
    if server.has_authorization() {
        return wrong("has a token under `headers`", "leave `Authorization` out of `headers` to sign in");
    }
    let url = Url::parse(address).map_err(|error| Fault::invalid(error.to_string()))?;
    if url.scheme() != "https" && !addresses::is_local(&url) {
        return wrong(
            "is not spoken to by `https`",
            "a token would go through the network for everybody to read",
        );
    }
    Ok((address, url))
}
