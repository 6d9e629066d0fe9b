//! Signing in to servers that are spoken to by HTTP, as the revision 2026-07-28 of the protocol has it: who signs people in is
//! found by what the server publishes, a code is asked for with PKCE and for this server alone, and its tokens are kept, used
//! and renewed here.
//!
//! A token goes to the address that it was made for and to whom it is from, and nowhere else: never into an answer, a log or a
//! fault. A sign-in belongs to one state, one issuer and one server, and what comes back is looked at for all three before
//! the code is sent anywhere.

pub mod addresses;
mod begin;
mod kept;
mod metadata;
mod signed;
mod web;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use drupe_extension_api::prelude::*;
use kept::{SignedIn, TokenFile};
pub use metadata::BearerChallenge;
use reqwest::Client;
use serde_json::{Value, json};
pub use signed::{Signed, SignedClient};
use tokio::sync::oneshot;
use url::{Url, form_urlencoded};
use web::{GivenTokens, TokenRefusal};

use crate::config::{SECRET, ServerSettings};

/// Milliseconds before its end at which a token is renewed.
const BEFORE_END: i64 = 30_000;

/// Milliseconds in which somebody must have signed in.
const PENDING: i64 = 10 * 60 * 1000;

/// Tokens of one server that are known, so that they can be taken out of texts: those that were renewed are among them.
const HIDDEN: usize = 32;

/// What was signed in to.
pub struct SignIns {
    host: Host,
    web: OnceLock<Client>,
    file: TokenFile,
    pending: Mutex<BTreeMap<String, PendingSignIn>>,
    accounts: Mutex<BTreeMap<String, Arc<Account>>>,
}

/// What is known of one server beside its tokens.
#[derive(Default)]
struct Account {
    /// Whoever makes, renews or drops its tokens.
    changing: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Texts that nobody may read.
    secrets: VecDeque<String>,
    /// Scopes that a call wanted and the tokens do not have.
    wanted: BTreeSet<String>,
}

/// A sign-in that somebody is at.
struct PendingSignIn {
    state: String,
    verifier: String,
    redirect: String,
    began: i64,
    /// Whether an answer must say from whom it is.
    named: bool,
    scopes: BTreeSet<String>,
    /// What is kept once there are tokens, which are empty here.
    signed: SignedIn,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SignIns {
    pub fn open(host: Host, folder: &Path) -> Result<Self, Fault> {
        let file = TokenFile::open(folder)?;
        Ok(Self { host, web: OnceLock::new(), file, pending: Mutex::default(), accounts: Mutex::default() })
    }

    fn web(&self) -> Result<&Client, Fault> {
        match self.web.get() {
            Some(client) => Ok(client),
            None => {
                let client = web::client()?;
                Ok(self.web.get_or_init(|| client))
            }
        }
    }

    fn now(&self) -> i64 {
        self.host.now().as_millisecond()
    }

    fn account(&self, name: &str) -> Arc<Account> {
        let mut accounts = lock(&self.accounts);
        let account = accounts.entry(name.to_owned()).or_insert_with(|| {
            let account = Account::default();
            self.file.get(name).iter().for_each(|signed| account.know(signed));
            Arc::new(account)
        });
        Arc::clone(account)
    }

    /// What a server was signed in to with, where that is still this server.
    fn signed(&self, name: &str, server: &ServerSettings) -> Option<SignedIn> {
        self.file.get(name).filter(|signed| signed.fits(server))
    }

    /// By whom somebody was signed in, and for what.
    pub fn told(&self, name: &str, server: &ServerSettings) -> Value {
        self.signed(name, server).map_or(
            Value::Null,
            |signed| json!({"issuer": signed.issuer, "resource": signed.resource, "scopes": signed.scopes}),
        )
    }

    /// A text without the tokens of a server.
    pub fn hidden(&self, name: &str, mut text: String) -> String {
        for secret in &lock(&self.account(name).known).secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "[secret]");
            }
        }
        text
    }

    /// Notes the scopes that a call wanted, for the next sign-in.
    fn wants(&self, name: &str, scopes: BTreeSet<String>) {
        lock(&self.account(name).known).wanted.extend(scopes);
    }

    /// The token to go to a server with, renewed where it is about to end; none where nobody is signed in.
    async fn token(self: &Arc<Self>, name: &str, server: &ServerSettings) -> Result<Option<String>, Fault> {
        let Some(signed) = self.signed(name, server) else { return Ok(None) };
        let now = self.now();
        let ends = signed.expires_at.map(|end| (end, BEFORE_END.min((end - signed.received_at) / 2)));
        let Some((end, _)) = ends.filter(|(end, before)| end - now <= (*before).max(1)) else {
            return Ok(Some(signed.access_token));
        };
        match self.renewed(name, server, &signed.access_token).await {
            Ok(renewed) => Ok(renewed),
            // It is good for a moment more.
            Err(_) if end > now => Ok(Some(signed.access_token)),
            Err(fault) => Err(fault),
        }
    }

    /// Another token in place of one that is worth nothing; none where somebody must sign in. Whoever comes while one is made
    /// is given that one.
    async fn renewed(
        self: &Arc<Self>,
        name: &str,
        server: &ServerSettings,
        stale: &str,
    ) -> Result<Option<String>, Fault> {
        let (give, given) = oneshot::channel();
        let (signins, name, server, stale) =
            (Arc::clone(self), name.to_owned(), server.clone(), stale.to_owned());
        // By itself: whoever waits may give up, and what the issuer gave meanwhile must be kept, since the old is worth nothing.
        self.host.spawn(async move {
            let renewed = signins.renew(&name, &server, &stale).await;
            let _ = give.send(renewed);
        })?;
        given.await.unwrap_or_else(|_| Err(Fault::internal("a token was renewed by nobody")))
    }

    async fn renew(
        self: &Arc<Self>,
        name: &str,
        server: &ServerSettings,
        stale: &str,
    ) -> Result<Option<String>, Fault> {
        let account = self.account(name);
        let _alone = account.changing.lock().await;
        let Some(signed) = self.signed(name, server) else { return Ok(None) };
        if signed.access_token != stale {
            return Ok(Some(signed.access_token));
        }
        let Some(refresh) = signed.refresh_token.clone() else { return Ok(None) };
        let address = Url::parse(&signed.token_endpoint).map_err(Fault::internal)?;
        let asked =
            [("grant_type", "refresh_token"), ("refresh_token", &*refresh), ("resource", &*signed.resource)];
        match web::tokens(self.web()?, &address, &signed.client, &asked).await {
            Ok(given) => {
                let signed = self.with(signed, given);
                let token = signed.access_token.clone();
                self.keep(name, &account, Some(signed)).await?;
                Ok(Some(token))
            }
            Err(TokenRefusal::Worthless(_)) => {
                self.keep(name, &account, None).await?;
                Ok(None)
            }
            Err(TokenRefusal::Failed(fault)) => {
                let message = format!("the token for `{name}` could not be renewed: {}", fault.message);
                Err(Fault { message: self.hidden(name, message), ..fault })
            }
        }
    }

    /// Tokens in place of those that there were. One to renew by stays where there is no other.
    fn with(&self, before: SignedIn, given: GivenTokens) -> SignedIn {
        let now = self.now();
        let lasts = given.lasts();
        SignedIn {
            access_token: given.access_token,
            refresh_token: given.refresh_token.or(before.refresh_token),
            received_at: now,
            expires_at: lasts.map(|lasts| now.saturating_add(lasts)),
            scopes: match given.scope {
                Some(scope) => metadata::scopes([&*scope]).into_iter().collect(),
                None => before.scopes,
            },
            ..before
        }
    }

    async fn keep(
        self: &Arc<Self>,
        name: &str,
        account: &Account,
        signed: Option<SignedIn>,
    ) -> Result<Option<SignedIn>, Fault> {
        signed.iter().for_each(|signed| account.know(signed));
        let (signins, name) = (Arc::clone(self), name.to_owned());
        self.host.blocking(move || signins.file.set(&name, signed)).await
    }

    /// Takes what came back when somebody had signed in: the address to which the browser was led, or what stands behind its
    /// question mark.
    pub async fn finish(
        self: &Arc<Self>,
        name: &str,
        server: &ServerSettings,
        response: &str,
    ) -> Result<Value, Fault> {
        let answer = begin::SignInAnswer::read(response)?;
        let pending = self.claimed(name, server, &answer)?;
        let code = answer.code()?;
        let address = Url::parse(&pending.signed.token_endpoint).map_err(Fault::internal)?;
        let asked = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &*pending.redirect),
            ("code_verifier", &*pending.verifier),
            ("resource", &*pending.signed.resource),
        ];
        let given = web::tokens(self.web()?, &address, &pending.signed.client, &asked).await;
        let given = given.map_err(|refusal| refusal.fault().help("begin anew with `drupe mcp login`"))?;
        let signed =
            self.with(SignedIn { scopes: pending.scopes.into_iter().collect(), ..pending.signed }, given);
        let told = json!({"server": name, "issuer": signed.issuer, "resource": signed.resource, "scopes": signed.scopes});
        let account = self.account(name);
        let _alone = account.changing.lock().await;
        self.keep(name, &account, Some(signed)).await?;
        lock(&account.known).wanted.clear();
        Ok(told)
    }

    /// The sign-in that an answer belongs to, which is then over. One of somebody else ends nothing.
    fn claimed(
        &self,
        name: &str,
        server: &ServerSettings,
        answer: &begin::SignInAnswer,
    ) -> Result<PendingSignIn, Fault> {
        let mut all = lock(&self.pending);
        let wrong = |why: &str| Err(Fault::denied(why).help("begin anew with `drupe mcp login`"));
        let Some(pending) = all.get(name) else { return wrong("nobody is signing in to this server") };
        if answer.state.as_deref() != Some(&*pending.state) {
            return wrong("what came back is of another sign-in: its `state` is not ours");
        }
        match &answer.issuer {
            Some(issuer) if *issuer != pending.signed.issuer => {
                return wrong(
                    "what came back is from somebody else than was asked: its `iss` is another issuer",
                );
            }
            None if pending.named => {
                return wrong("what came back does not say from whom it is, although its issuer always does");
            }
            _ => {}
        }
        let late = self.now() - pending.began > PENDING;
        let Some(pending) = all.remove(name) else { return wrong("nobody is signing in to this server") };
        drop(all);
        if late {
            return wrong("signing in took longer than 10 minutes");
        }
        if server.url.as_ref() != Some(&pending.signed.url) {
            return wrong("the address of this server changed while somebody signed in");
        }
        Ok(pending)
    }

    /// Forgets the tokens of a server, and has them made worthless where their issuer says how. Whether there were any, and
    /// whether the issuer says that they are worthless.
    pub async fn forget(self: &Arc<Self>, name: &str) -> Result<(bool, bool), Fault> {
        lock(&self.pending).remove(name);
        let account = self.account(name);
        let _alone = account.changing.lock().await;
        if self.file.get(name).is_none() {
            return Ok((false, false));
        }
        let Some(signed) = self.keep(name, &account, None).await? else { return Ok((false, false)) };
        let address = signed.revocation_endpoint.as_deref().and_then(|address| Url::parse(address).ok());
        let Some(address) = address else { return Ok((true, false)) };
        let web = self.web()?;
        let mut revoked = true;
        for (token, kind) in
            [(signed.refresh_token.as_ref(), "refresh_token"), (Some(&signed.access_token), "access_token")]
        {
            if let Some(token) = token {
                revoked &= web::revoke(web, &address, &signed.client, token, kind).await;
            }
        }
        Ok((true, revoked))
    }
}

impl Account {
    fn know(&self, signed: &SignedIn) {
        let mut known = lock(&self.known);
        for secret in signed.secrets() {
            if secret.len() >= SECRET && !known.secrets.contains(secret) {
                known.secrets.push_front(secret.clone());
            }
        }
        known.secrets.truncate(HIDDEN);
    }
}

/// The parameters behind a question mark.
fn parameters(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    form_urlencoded::parse(query.as_bytes()).map(|(name, value)| (name.into_owned(), value.into_owned()))
}
