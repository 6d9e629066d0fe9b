//! Named tokens: made and revoked by the operator, known to the doors.

use std::{collections::BTreeSet, sync::Arc};

use drupe_extension_api::{
    ExtensionId, Fault, FaultCode, SessionId,
    control::{Allowance, Power, TokenMade, TokenNew, TokenPromised, TokenStatus, Whoami},
};
use drupe_limits::TokenLimits;
use drupe_link::named_token;
use drupe_surface::{
    grants::{self, Grant, PROMISED, Promise},
    principal::{Principal, Reach, Who},
};

use crate::{kernel::Kernel, settings};

/// What stands for all sessions.
const ALL: &str = "*";

/// Gives the bearers of the tokens of this home what they have; before anybody is let in.
pub async fn load(kernel: &Kernel) -> Result<(), Fault> {
    for (token, hash) in kernel.store.tokens().await? {
        give(kernel, hash, &token).await?;
    }
    Ok(())
}

/// Gives the bearer of a token what it says, and bounds what they use.
async fn give(kernel: &Kernel, hash: String, token: &TokenStatus) -> Result<(), Fault> {
    if let Some(sessions) = &token.sessions {
        let (all, each) = (settings::allowance(&token.per_day), settings::allowance(&token.per_day_each));
        let limits = TokenLimits { sessions: sessions.clone(), all, each };
        bind(kernel, &token.name, limits).await?;
    }
    kernel.grants.give(hash, principal(token));
    Ok(())
}

/// Bounds what is used in somebody's sessions from now on.
pub(super) async fn bind(kernel: &Kernel, name: &str, limits: TokenLimits) -> Result<(), Fault> {
    let (quotas, now_ms) = (&kernel.intake.turns.quotas, kernel.base.clock.now_ms());
    let mut used = Vec::new();
    for purse in quotas.purses_of(name, &limits) {
        let of_it = kernel.store.used_below(purse.sessions().to_owned(), now_ms).await?;
        used.push((purse, settings::counted(of_it)));
    }
    quotas.bind(name, limits, used);
    Ok(())
}

/// Refuses amounts of money that are none.
pub(super) fn check_amounts(given: impl IntoIterator<Item = Allowance>) -> Result<(), Fault> {
    let mut amounts = given.into_iter().filter_map(|allowance| allowance.max_cost_usd);
    match amounts.find(|usd| !usd.is_finite() || *usd < 0.0) {
        Some(wrong) => {
            Err(Fault::invalid(format!("`max_cost_usd` is {wrong}, which is no amount of US dollars")))
        }
        None => Ok(()),
    }
}

/// Those that there are.
pub async fn list(kernel: &Kernel) -> Result<Vec<TokenStatus>, Fault> {
    let all = kernel.store.tokens().await?;
    Ok(all.into_iter().map(|(token, _)| token).collect())
}

/// Who somebody is, and how far they reach.
pub fn whoami(by: &Principal) -> Whoami {
    let sessions = match &by.sessions {
        Reach::All => None,
        Reach::Below(name) => Some(name.to_string()),
        // Which nobody can be given: it is no session's name.
        Reach::None => Some(String::new()),
    };
    let agents = by.agents.iter().flatten().cloned().collect();
    Whoami { name: by.name(), may: by.may.iter().copied().collect(), sessions, agents }
}

/// Makes one.
pub async fn new(kernel: &Kernel, by: &Principal, ask: TokenNew) -> Result<TokenMade, Fault> {
    let TokenNew { name, may, sessions, agents, per_day, per_day_each } = ask;
    // The same form, so that a token can be named wherever an extension can.
    if ExtensionId::new(&name).is_err() {
        return Err(Fault::invalid(format!("`{name}` cannot be the name of a token"))
            .help("take 1 to 48 of a-z, 0-9, `_` and `-`"));
    }
    let may: BTreeSet<Power> = may.into_iter().collect();
    if may.is_empty() {
        return Err(
            Fault::invalid(format!("token `{name}` may do nothing")).help("name at least one thing in `may`")
        );
    }
    may.iter().try_for_each(|power| by.needs(*power, "tokens.new"))?;
    let sessions = match sessions.unwrap_or_else(|| format!("token.{name}")) {
        all if all == ALL => None,
        sessions => Some(SessionId::new(sessions)?.to_string()),
    };
    // Nobody gives away what they do not have.
    let of_all = (sessions.is_none() && !by.reaches_all()) || (agents.is_empty() && by.agents.is_some());
    if of_all {
        let message = format!("{} does not reach all sessions and agents", by.name());
        return Err(Fault::denied(message).help("name those that the bearer is to reach"));
    }
    if let Some(below) = &sessions {
        by.reaches(&SessionId::new(below)?)?;
    }
    for agent in &agents {
        by.reaches_agent(agent)?;
        kernel.roster.agent(&kernel.roster.snapshot(), agent)?;
    }
    if sessions.is_none() && !(per_day.is_empty() && per_day_each.is_empty()) {
        return Err(Fault::invalid(format!("what token `{name}` uses cannot be told from what others use"))
            .help("a budget is counted by sessions: name those that its bearer is to reach"));
    }
    check_amounts([per_day, per_day_each])?;
    let created = jiff::Timestamp::from_millisecond(kernel.base.clock.now_ms()).map_err(Fault::internal)?;
    let may = may.into_iter().collect();
    let status = TokenStatus { name, may, sessions, agents, per_day, per_day_each, created };
    let token = named_token().map_err(Fault::internal)?;
    let hash = grants::hash(&token);
    if !kernel.store.make_token(status.clone(), hash.clone()).await? {
        let name = &status.name;
        return Err(Fault::invalid(format!(
            "`{name}` is the name of a token, or was that of one that is revoked"
        ))
        .help(format!("choose another name, such as `{name}-2`: sessions and turns go by the name")));
    }
    give(kernel, hash, &status).await?;
    Ok(TokenMade { token, status })
}

/// Promises a token to whoever shows a code in time, once. It is made then, by the kernel that promised it.
pub fn promise(kernel: &Kernel, by: &Principal, ask: TokenNew) -> Result<TokenPromised, Fault> {
    ask.may.iter().try_for_each(|power| by.needs(*power, "tokens.promise"))?;
    let code = named_token().map_err(Fault::internal)?;
    kernel.grants.promise(&code, Promise { ask, by: by.clone() });
    Ok(TokenPromised { code, valid_for_s: PROMISED.as_secs() })
}

/// Makes the token that was promised to the bearer of a code.
pub async fn redeem(kernel: &Kernel, code: &str) -> Result<TokenMade, Fault> {
    let promise = kernel.grants.redeem(code).ok_or_else(|| {
        Fault::new(
            FaultCode::Denied,
            "nothing is promised to the bearer of this code: it was used, or is too old",
        )
        .help("`drupe open` gives a new one")
    })?;
    new(kernel, &promise.by, promise.ask).await
}

/// Forgets one; what goes on under it ends.
pub async fn revoke(kernel: &Kernel, name: String) -> Result<(), Fault> {
    let known = kernel.store.revoke_token(name.clone()).await?;
    kernel.grants.revoke(&name);
    kernel.intake.turns.quotas.unbind(&name);
    if known {
        return Ok(());
    }
    Err(Fault::not_found(format!("there is no token `{name}`")).help("`drupe token list` shows them"))
}

/// Forgets the one that its bearer shows: whoever has it may do away with it, and with nothing else.
pub async fn leave(kernel: &Kernel, by: &Principal) -> Result<(), Fault> {
    match &by.who {
        Who::Token { name, .. } => revoke(kernel, name.clone()).await,
        _ => Err(Fault::invalid(format!("{} shows no named token", by.name()))),
    }
}

/// Who asks for something through an extension: the extension itself, or the bearer of a token that it passes on, with what
/// that bearer was given.
pub fn through(
    kernel: &Kernel,
    by: Principal,
    bearer: Option<&str>,
) -> Result<(Principal, Option<Arc<Grant>>), Fault> {
    let Some(token) = bearer else {
        let mut by = by;
        // That it may pass on, and is not its own to use.
        by.may.remove(&Power::Operate);
        return Ok((by, None));
    };
    let grant = kernel.grants.admit(token);
    let unknown = || Fault::new(FaultCode::Unauthenticated, "nobody was given this token");
    let grant = grant.ok_or_else(|| unknown().help("`drupe token list` shows those that hold"))?;
    Ok((grant.principal.clone().within(&by), Some(grant)))
}

fn principal(token: &TokenStatus) -> Principal {
    let TokenStatus { name, may, sessions, agents, .. } = token;
    Principal {
        who: Who::Token { name: name.clone(), through: None },
        may: may.iter().copied().collect(),
        sessions: match sessions.as_deref().map(SessionId::new) {
            None => Reach::All,
            Some(below) => below.map_or(Reach::None, Reach::Below),
        },
        agents: (!agents.is_empty()).then(|| agents.iter().cloned().collect()),
    }
}
