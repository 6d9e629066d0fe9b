//! Who asks, and how far they reach.
//!
//! A [`Principal`] is made where a connection or an extension's call comes in, and handed to the method that it asks for.
//! What a method needs stands in its row of the table of methods and is compared there, once; which sessions and agents
//! somebody reaches is asked where a request names one. Nothing else decides what anybody may do: no method looks at who
//! asks to refuse something, and no surface has a way around it.
//!
//! A principal is never more than whoever made it. An extension that acts for the bearer of a token gets what both of them
//! have ([`Principal::within`]), so that a mistake of the extension gives the bearer nothing, and the other way round.

use std::collections::BTreeSet;

use drupe_extension_api::{AgentId, ExtensionId, Fault, SessionId, control::Power};

/// The longest name behind a token, in bytes: ids of sessions below it still fit.
const LONGEST_NAME: usize = 24;

/// Somebody who asks something of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Who.
    pub who: Who,
    /// What they may do.
    pub may: BTreeSet<Power>,
    /// The sessions that they reach.
    pub sessions: Reach,
    /// The agents that they reach; none for all.
    pub agents: Option<BTreeSet<AgentId>>,
}

/// By what somebody is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// The token of the home, which only its owner can read.
    Operator,
    /// A named token.
    Token {
        /// Its name; `token/name` for somebody whom its bearer speaks for.
        name: String,
        /// The extension that passes on what its bearer asks for; none on the control socket.
        through: Option<Caller>,
    },
    /// An extension asks for itself.
    Extension(Caller),
}

/// The code that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The extension that it is a part of.
    pub id: ExtensionId,
    /// Which of its instances.
    pub instance: u64,
    /// The token of the call on whose behalf it asks; empty where it asks by itself.
    pub call: String,
}

/// Which sessions somebody reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// All.
    All,
    /// The one of this name and those that begin with it and `:`.
    Below(SessionId),
    /// None.
    None,
}

impl Principal {
    /// The operator.
    pub fn operator() -> Self {
        Self { who: Who::Operator, may: Power::ALL.into(), sessions: Reach::All, agents: None }
    }

    /// As somebody is called in messages and in the audit.
    pub fn name(&self) -> String {
        match &self.who {
            Who::Operator => "operator".into(),
            Who::Token { name, .. } => format!("token `{name}`"),
            Who::Extension(Caller { id, .. }) => format!("extension `{id}`"),
        }
    }

    /// The extension whose code asks, for itself or for somebody else.
    pub fn extension(&self) -> Option<&ExtensionId> {
        self.caller().map(|caller| &caller.id)
    }

    /// The code that asks, for itself or for somebody else; none on the control socket.
    pub fn caller(&self) -> Option<&Caller> {
        match &self.who {
            Who::Operator => None,
            Who::Token { through, .. } => through.as_ref(),
            Who::Extension(caller) => Some(caller),
        }
    }

    /// What this principal has that `by`, who passes on what it asks for, has as well.
    #[must_use]
    pub fn within(self, by: &Self) -> Self {
        let Self { who, mut may, sessions, agents } = self;
        may.retain(|power| by.may.contains(power));
        let who = match who {
            Who::Token { name, .. } => Who::Token { name, through: by.caller().cloned() },
            who => who,
        };
        let agents = match (agents, &by.agents) {
            (Some(own), Some(theirs)) => Some(own.intersection(theirs).cloned().collect()),
            (own, theirs) => own.or_else(|| theirs.clone()),
        };
        Self { who, may, sessions: sessions.within(&by.sessions), agents }
    }

    /// Somebody whom this principal, the bearer of a token, speaks for: known by `name` behind the token's, in sessions below
    /// that name alone. They converse, and decide nothing about the daemon. None where `name` is no part of a session's id.
    pub fn on_behalf_of(&self, name: &str) -> Option<Self> {
        let Who::Token { name: token, through } = &self.who else { return None };
        let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if !(1..=LONGEST_NAME).contains(&name.len()) || !name.chars().all(sound) {
            return None;
        }
        let below = match &self.sessions {
            Reach::All => SessionId::new(format!("token.{token}:{name}")).ok()?,
            Reach::Below(above) => SessionId::new(format!("{above}:{name}")).ok()?,
            Reach::None => return None,
        };
        let converses = |power: &Power| matches!(power, Power::Read | Power::Submit | Power::Direct);
        Some(Self {
            who: Who::Token { name: format!("{token}/{name}"), through: through.clone() },
            may: self.may.iter().copied().filter(converses).collect(),
            sessions: Reach::Below(below),
            agents: self.agents.clone(),
        })
    }

    /// Refuses what this principal may not do.
    pub fn needs(&self, power: Power, what: &str) -> Result<(), Fault> {
        if self.may.contains(&power) {
            return Ok(());
        }
        let fault = Fault::denied(format!("{} may not use `{what}`", self.name()));
        Err(match self.who {
            Who::Token { .. } => fault.help(format!("a token made with `--may {}` may", power.name())),
            Who::Extension(_) if power == Power::Submit => {
                fault.help("its manifest needs `rights: [submit]`")
            }
            Who::Extension(_) | Who::Operator => fault,
        })
    }

    /// Whether every session is reached, so that a request need not be asked which one it is about.
    pub fn reaches_all(&self) -> bool {
        self.sessions == Reach::All
    }

    /// Whether a session is reached.
    pub fn sees(&self, session: &SessionId) -> bool {
        match &self.sessions {
            Reach::All => true,
            Reach::Below(name) => session.below(name.as_str()).is_some(),
            Reach::None => false,
        }
    }

    /// Refuses a session that is not reached.
    pub fn reaches(&self, session: &SessionId) -> Result<(), Fault> {
        if self.sees(session) {
            return Ok(());
        }
        let fault = Fault::denied(format!("{} does not reach session `{session}`", self.name()));
        Err(match &self.sessions {
            Reach::Below(name) => {
                fault.help(format!("its sessions are `{name}` and those that begin with `{name}:`"))
            }
            Reach::All | Reach::None => fault,
        })
    }

    /// Refuses an agent that is not reached.
    pub fn reaches_agent(&self, agent: &AgentId) -> Result<(), Fault> {
        match &self.agents {
            Some(agents) if !agents.contains(agent) => {
                let known: Vec<_> = agents.iter().map(|agent| format!("`{agent}`")).collect();
                let fault = Fault::denied(format!("{} does not reach agent `{agent}`", self.name()));
                Err(fault.help(format!("it reaches {}", known.join(", "))))
            }
            _ => Ok(()),
        }
    }
}

impl Reach {
    /// Those that both reach.
    fn within(self, by: &Self) -> Self {
        match (self, by) {
            (own, Self::All) => own,
            (Self::All, theirs) => theirs.clone(),
            (Self::Below(own), Self::Below(theirs)) if own.below(theirs.as_str()).is_some() => {
                Self::Below(own)
            }
            (Self::Below(own), Self::Below(theirs)) if theirs.below(own.as_str()).is_some() => {
                Self::Below(theirs.clone())
            }
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(may: &[Power], sessions: Reach, agents: Option<&[&str]>) -> Principal {
        let agents = agents.map(|ids| ids.iter().map(|id| id.parse().expect("an id")).collect());
        let who = Who::Token { name: "ci".into(), through: None };
        Principal { who, may: may.iter().copied().collect(), sessions, agents }
    }

    fn session(id: &str) -> SessionId {
        id.parse().expect("an id")
    }

    #[test]
    fn a_session_is_reached_by_its_name_and_below_it_alone() {
        let ci = token(&[], Reach::Below(session("a.b")), None);
        for (id, reached) in [
            ("a.b", true),
            ("a.b:1", true),
            ("a.b:1:2", true),
            ("a.bc", false),
            ("a", false),
            ("x:a.b", false),
        ] {
            assert_eq!(ci.sees(&session(id)), reached, "{id}");
            assert_eq!(ci.reaches(&session(id)).is_ok(), reached, "{id}");
        }
        assert!(!token(&[], Reach::None, None).sees(&session("a")));
        assert!(Principal::operator().sees(&session("a")));
    }

    #[test]
    fn what_is_not_given_is_refused_by_name() {
        let ci = token(&[Power::Read], Reach::All, Some(&["haiku"]));
        assert_eq!(ci.needs(Power::Read, "sessions.list"), Ok(()));
        let refused = ci.needs(Power::Submit, "turn.submit").expect_err("it may only read");
        assert!(refused.to_string().contains("token `ci` may not use `turn.submit`"), "{refused}");
        assert!(refused.help.is_some_and(|help| help.contains("--may submit")));
        assert_eq!(ci.reaches_agent(&"haiku".parse().expect("an id")), Ok(()));
        assert!(ci.reaches_agent(&"other".parse().expect("an id")).is_err());
    }

    #[test]
    fn whoever_acts_for_somebody_has_no_more_than_both_have() {
        use Power::{Inspect, Operate, Read, Submit};
        let by = Principal {
            who: Who::Extension(Caller {
                id: "http".parse().expect("an id"),
                instance: 1,
                call: String::new(),
            }),
            ..token(&[Read, Submit, Inspect], Reach::Below(session("http")), Some(&["a", "b"]))
        };
        let below = |name: &str| Reach::Below(session(name));
        for (own, both) in [
            (Reach::All, below("http")),
            (below("http:ann"), below("http:ann")),
            (below("http"), below("http")),
            (below("mail"), Reach::None),
            (below("httpd"), Reach::None),
            (Reach::None, Reach::None),
        ] {
            assert_eq!(token(&[], own, None).within(&by).sessions, both);
        }
        let ann = token(&[Submit, Operate], Reach::All, Some(&["b", "c"])).within(&by);
        assert_eq!(ann.may, [Submit].into());
        assert_eq!(ann.agents, Some(["b".parse().expect("an id")].into()));
        assert_eq!(token(&[], Reach::All, None).within(&by).agents, by.agents);
        assert_eq!(ann.extension().map(ExtensionId::as_str), Some("http"));
        assert_eq!(ann.name(), "token `ci`");
        let whole = token(&[Read], below("x"), None);
        assert_eq!(whole.clone().within(&Principal::operator()), whole);
    }

    #[test]
    fn whoever_is_spoken_for_converses_in_sessions_of_their_own() {
        use Power::{Direct, Inspect, Operate, Read, Submit};
        let shop = token(&[Read, Submit, Direct, Inspect, Operate], Reach::All, Some(&["sales"]));
        let ann = shop.on_behalf_of("ann").expect("it is a name");
        assert_eq!((ann.name().as_str(), &ann.agents), ("token `ci/ann`", &shop.agents));
        assert_eq!(ann.may, [Read, Submit, Direct].into());
        assert_eq!(ann.sessions, Reach::Below(session("token.ci:ann")));
        let of_one =
            token(&[Submit], Reach::Below(session("shop")), None).on_behalf_of("a.b-c_9").expect("a name");
        assert_eq!((of_one.may, of_one.sessions), ([Submit].into(), Reach::Below(session("shop:a.b-c_9"))));
        for wrong in ["", "a:b", "a/b", "ann ", "ä", "a234567890123456789012345"] {
            assert_eq!(shop.on_behalf_of(wrong), None, "{wrong}");
        }
        assert_eq!(Principal::operator().on_behalf_of("ann"), None);
        assert_eq!(token(&[Read], Reach::None, None).on_behalf_of("ann"), None);
    }
}
