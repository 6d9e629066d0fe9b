//! What the sessions of a named token may use: all of them together, and those of each person for whom its bearer speaks.
//!
//! A session belongs to a purse by its name alone, whoever writes in it. So what a turn sets off, in whatever agent, is
//! counted, and a token that was made with another one cannot reach beyond that one's purse.

use std::collections::BTreeMap;

use drupe_extension_api::SessionId;

use crate::{ScopeLimits, TokenLimits};

/// Something that is counted for a token, for a day.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Purse {
    token: String,
    sessions: String,
    /// The person whose it is; none for the whole token.
    person: Option<String>,
}

impl Purse {
    /// The name of the sessions that count.
    pub fn sessions(&self) -> &str {
        &self.sessions
    }

    pub(crate) fn holds(&self, session: &SessionId) -> bool {
        session.below(&self.sessions).is_some()
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Its bounds, of those that its token has.
    pub(crate) fn limits<'a>(&self, bounds: &'a TokenLimits) -> &'a ScopeLimits {
        if self.is_of_all() { &bounds.all } else { &bounds.each }
    }

    pub(crate) fn is_of_all(&self) -> bool {
        self.person.is_none()
    }

    pub(crate) fn whose(&self) -> String {
        format!("token `{}`", self.name())
    }

    pub(crate) fn name(&self) -> String {
        self.person.as_ref().map_or_else(|| self.token.clone(), |person| format!("{}/{person}", self.token))
    }

    /// What its limits are called, without the unit.
    pub(crate) fn key(&self) -> String {
        let each = if self.is_of_all() { "" } else { "_each" };
        format!("tokens.{}.per_day{each}", self.token)
    }
}

/// The purses that a session belongs to, with what each may hold.
pub(crate) fn of(bounds: &BTreeMap<String, TokenLimits>, session: &SessionId) -> Vec<(Purse, ScopeLimits)> {
    let mut purses = Vec::new();
    for (token, TokenLimits { sessions, all, each }) in bounds {
        let Some(rest) = session.below(sessions) else { continue };
        let purse = |sessions: String, person| Purse { token: token.clone(), sessions, person };
        purses.push((purse(sessions.clone(), None), *all));
        if let Some(person) = rest.split(':').next().filter(|person| !person.is_empty()) {
            purses.push((purse(format!("{sessions}:{person}"), Some(person.to_owned())), *each));
        }
    }
    purses.retain(|(_, limits)| *limits != ScopeLimits::unlimited());
    purses
}
