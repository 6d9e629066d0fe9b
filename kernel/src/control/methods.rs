//! The methods of the control API: one table for the control socket and for extensions that hold the right.
//!
//! Each row says what it is called, what whoever asks must be able to do, and what it does. The need is checked here, by
//! [`call`], before the row is run; a row checks only which sessions and agents the request is about. Two kinds of methods
//! are not in the table: `hello`, which belongs to a connection, and those that [stream](super::streams).

use std::sync::Arc;

use drupe_extension_api::{
    AgentId, Fault, FaultCode, SessionId,
    control::{
        ApprovalState, Named, Numbered, PathArgument, Power, Restart, Scaffold, SessionPersonas,
        SessionSelect, SessionShow, SpawnedArgument, SpawnedQuery, SpawnedTell, TemplateQuery, TurnArgument,
        UsageQuery, method,
    },
};
use drupe_journal::archive_file;
use drupe_link::Up;
use drupe_surface::{ending::Why, principal::Principal};
use futures_util::future::BoxFuture;
use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::value::{RawValue, to_raw_value};

use drupe_wiring::personas;

use super::{
    answers, extensions, insight, people, replay, schedules, spawned, status, streams, tokens, trial, turns,
};
use crate::{
    draft::Draft,
    extension::{Record, change},
    kernel::Kernel,
};

/// A row of the table.
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// What whoever asks must be able to do.
    pub needs: Power,
    // In a box, because each request is a task, which would be as large as the largest of all rows.
    run: for<'a> fn(&'a Arc<Kernel>, &'a Principal, &'a RawValue) -> BoxFuture<'a, Answer>,
}

/// The parameters of a method that has none: what it is given is not looked at.
type Nothing = IgnoredAny;

type Answer = Result<Box<RawValue>, Fault>;

/// `NAME(type of the parameters) needs power, |kernel, who asks, parameters| what is done`, which ends with a result.
macro_rules! methods {
    ($($name:ident($params:ty) needs $needs:ident, |$kernel:pat_param, $by:pat_param, $given:pat_param| $run:expr;)*) => {
        &[$(Method {
            name: method::$name,
            needs: Power::$needs,
            run: |$kernel, $by, params| Box::pin(async move {
                let $given: $params = take(params)?;
                give($run?)
            }),
        }),*]
    };
}

/// The table.
pub static METHODS: &[Method] = methods! {
    STATUS(Nothing) needs Inspect, |kernel, _, _| status::status(kernel).await;
    CONFIG_SHOW(Nothing) needs Inspect, |kernel, _, _| Ok::<_, Fault>(status::config(kernel));
    STOP(Nothing) needs Operate, |kernel, _, _| {
        kernel.supervision.tell(&Up::StopAgreed);
        kernel.life.ending.request(Why::Stop, None);
        Ok::<_, Fault>(())
    };
    RESTART(Option<Restart>) needs Operate, |kernel, _, ask| {
        let reason = ask.and_then(|ask| ask.reason).unwrap_or_else(|| "the operator asked for it".into());
        kernel.roster.request_restart(reason, None, false).await
    };

    EXTENSIONS_LIST(Nothing) needs Inspect, |kernel, _, _| Ok::<_, Fault>(kernel.roster.extensions.read(Record::status));
    EXTENSIONS_SHOW(Named) needs Inspect, |kernel, _, Named { id }| extensions::show(kernel, id).await;
    EXTENSIONS_CHECK(PathArgument) needs Extend, |kernel, by, PathArgument { path }| {
        Draft::new(&kernel.roster, path, by)?.check(&kernel.roster).await
    };
    EXTENSIONS_ADD(PathArgument) needs Extend, |kernel, by, PathArgument { path }| {
        Draft::new(&kernel.roster, path, by)?.add(&kernel.roster).await
    };
    EXTENSIONS_SCAFFOLD(Scaffold) needs Extend, |kernel, by, Scaffold { id, path }| {
        Draft::new(&kernel.roster, path, by)?.begin(&kernel.roster, id).await
    };
    EXTENSIONS_TRY(_) needs Extend, |kernel, by, ask| trial::run(kernel, by, ask).await;
    EXTENSIONS_ENABLE(Named) needs Operate, |kernel, _, Named { id }| {
        extensions::decide(kernel, id, Some(true)).await
    };
    EXTENSIONS_DISABLE(Named) needs Operate, |kernel, _, Named { id }| {
        extensions::decide(kernel, id, Some(false)).await
    };
    EXTENSIONS_RELEASE(Named) needs Operate, |kernel, _, Named { id }| {
        extensions::decide(kernel, id, None).await
    };
    EXTENSIONS_ASK(_) needs Operate, |kernel, by, ask| extensions::ask(kernel, by, ask).await;
    APPROVALS_LIST(Nothing) needs Inspect, |kernel, by, _| {
        // Whoever asks what waits may have put it there this moment, or where nothing is watched. An extension has what
        // it brings taken in by `extensions.add`.
        if by.extension().is_none() {
            change::rescan(&kernel.roster).await?;
        }
        let mut all = kernel.intake.turns.policy.questions().await?;
        all.retain(|one| one.call.as_ref().is_none_or(|call| by.sees(&call.session)));
        all.extend(kernel.store.activations().await?);
        all.sort_by_key(|one| one.state != ApprovalState::Pending);
        Ok::<_, Fault>(all)
    };
    APPROVALS_ANSWER(_) needs Operate, |kernel, by, answer| answers::answer(kernel, by, answer).await;
    APPROVALS_GRANTS(Nothing) needs Inspect, |kernel, by, _| {
        let mut all = kernel.intake.turns.policy.grants().await?;
        all.retain(|grant| by.sees(&grant.session));
        Ok::<_, Fault>(all)
    };
    APPROVALS_REVOKE(Named) needs Operate, |kernel, by, Named { id }| {
        answers::revoke_grant(kernel, by, &id).await
    };

    AGENTS_LIST(Nothing) needs Read, |kernel, by, _| {
        let snapshot = kernel.roster.snapshot();
        let reached = |id: &AgentId| by.reaches_agent(id).is_ok() && kernel.base.offered(id).is_ok();
        let agents = snapshot.agents.iter().filter(|(id, _)| reached(id));
        Ok::<_, Fault>(agents.map(|(id, agent)| agent.status(id)).collect::<Vec<_>>())
    };
    AGENTS_SHOW(Named) needs Read, |kernel, by, Named { id }| {
        let id = AgentId::new(id)?;
        by.reaches_agent(&id)?;
        kernel.base.offered(&id)?;
        kernel.roster.snapshot().detail(&id)
    };
    AGENTS_TEMPLATE(Option<TemplateQuery>) needs Read, |kernel, by, ask| {
        let id = ask.unwrap_or_default().id.map(AgentId::new).transpose()?;
        if let Some(id) = &id {
            by.reaches_agent(id)?;
            kernel.base.offered(id)?;
        }
        extensions::template(kernel, id)
    };

    SKILLS_LIST(Nothing) needs Inspect, |kernel, _, _| {
        Ok::<_, Fault>(kernel.roster.snapshot().skills())
    };

    SESSIONS_LIST(Nothing) needs Read, |kernel, by, _| {
        let mut all = kernel.store.sessions().await?;
        all.retain(|session| by.sees(&session.id));
        Ok::<_, Fault>(all)
    };
    SESSIONS_SHOW(SessionShow) needs Read, |kernel, by, SessionShow { id, after, brief }| {
        let id = SessionId::new(id)?;
        by.reaches(&id)?;
        match kernel.store.session(&id, after.unwrap_or(0), brief).await? {
            Some(mut session) => {
                if by.reaches_all() {
                    session.archived = archived(kernel, &id);
                }
                Ok(session)
            }
            None => Err(named(kernel, by, id.as_str(), no_session(&id)).await),
        }
    };
    SESSION_SELECT(SessionSelect) needs Direct, |kernel, by, SessionSelect { session, agent }| {
        by.reaches(&session)?;
        if agent.is_none() && by.agents.is_some() {
            return Err(Fault::denied(format!("{} does not reach the orchestrator", by.name())));
        }
        if let Some(agent) = &agent {
            by.reaches_agent(agent)?;
            if !kernel.store.personas(&session).await?.iter().any(|own| own.name == *agent) {
                kernel.base.offered(agent)?;
                kernel.roster.snapshot().agent(agent)?;
            }
        }
        match kernel.store.select_agent(&session, agent).await? {
            true => Ok(()),
            false => Err(no_session(&session)),
        }
    };
    SESSION_PERSONAS(SessionPersonas) needs Direct, |kernel, by, SessionPersonas { session, personas }| {
        by.reaches(&session)?;
        if by.agents.is_some() {
            return Err(Fault::denied(format!("{} does not reach the orchestrator, which personas are like", by.name())));
        }
        personas::check(&kernel.roster.snapshot(), &personas).map_err(|why| Fault::invalid(why.to_string()))?;
        match kernel.store.give_personas(&session, personas).await? {
            true => Ok(()),
            false => Err(Fault::invalid(format!("session `{session}` has begun; personas are given before its first message"))
                .help("give them to a new session")),
        }
    };
    SESSIONS_STOP(Named) needs Direct, |kernel, by, Named { id }| {
        let id = SessionId::new(id)?;
        by.reaches(&id)?;
        turns::stop_session(kernel, &id).await
    };
    SESSIONS_DELETE(Named) needs Operate, |kernel, by, Named { id }| {
        let id = SessionId::new(id)?;
        by.reaches(&id)?;
        match turns::delete_session(kernel, &id).await? {
            Some(deleted) => Ok(deleted),
            None => Err(named(kernel, by, id.as_str(), no_session(&id)).await),
        }
    };

    TURN_SUBMIT(_) needs Submit, |kernel, by, ask| turns::submit(kernel, by, ask).await;
    TURN_WAIT(TurnArgument) needs Read, |kernel, by, ask| {
        turns::reaches(kernel, by, &ask.turn).await?;
        found(kernel, turns::wait(kernel, ask).await).await
    };
    TURN_STOP(TurnArgument) needs Direct, |kernel, by, TurnArgument { turn, .. }| {
        turns::reaches(kernel, by, &turn).await?;
        match found(kernel, turns::stop_turn(kernel, &turn).await).await? {
            None => Ok(()),
            Some(by) => Err(Fault::invalid(format!("turn `{turn}` is a part of turn `{by}` by now"))
                .help(format!("stop `{by}`"))),
        }
    };

    SPAWNED_LIST(Option<SpawnedQuery>) needs Read, |kernel, by, ask| spawned::list(kernel, by, ask.unwrap_or_default());
    SPAWNED_STOP(SpawnedArgument) needs Direct, |kernel, by, ask| spawned::stop(kernel, by, ask).await;
    SPAWNED_TELL(SpawnedTell) needs Direct, |kernel, by, ask| spawned::tell(kernel, by, ask).await;

    TRACE_SHOW(_) needs Read, |kernel, by, ask| found(kernel, insight::trace(kernel, by, ask).await).await;
    WHY(Named) needs Read, |kernel, by, Named { id }| {
        match found(kernel, insight::why(kernel, by, &id).await).await {
            Err(fault) => Err(named(kernel, by, &id, fault).await),
            why => why,
        }
    };
    ITEMS_SHOW(_) needs Read, |kernel, by, ask| found(kernel, insight::item(kernel, by, ask).await).await;
    REPLAY_RUN(_) needs Operate, |kernel, by, ask| found(kernel, replay::run(kernel, by, ask).await).await;
    LATENCIES_SHOW(Nothing) needs Inspect, |kernel, _, _| Ok::<_, Fault>(kernel.latencies.all());
    USAGE_SHOW(Option<UsageQuery>) needs Inspect, |kernel, by, ask| {
        let ask = ask.unwrap_or_default();
        match &ask.session {
            Some(session) => by.reaches(session)?,
            None if by.reaches_all() => {}
            None => return Err(Fault::denied(format!("{} does not reach all sessions", by.name())).help("name one")),
        }
        kernel.store.usage(ask).await
    };
    SCHEDULES_LIST(Nothing) needs Inspect, |kernel, by, _| schedules::list(kernel, by).await;
    SCHEDULES_SHOW(Named) needs Inspect, |kernel, by, Named { id }| schedules::show(kernel, by, &id).await;
    SCHEDULES_ADD(_) needs Direct, |kernel, by, new| schedules::add(kernel, by, new).await;
    SCHEDULES_REMOVE(Named) needs Direct, |kernel, by, Named { id }| schedules::remove(kernel, by, &id).await;
    SCHEDULES_PAUSE(_) needs Direct, |kernel, by, ask| schedules::pause(kernel, by, ask).await;
    SCHEDULES_RUN(Named) needs Direct, |kernel, by, Named { id }| schedules::run(kernel, by, &id).await;
    BUS_DEAD(Nothing) needs Inspect, |kernel, _, _| kernel.store.dead_messages().await;
    BUS_RETRY(Numbered) needs Operate, |kernel, _, Numbered { id }| insight::dead(kernel, true, id).await;
    BUS_DROP(Numbered) needs Operate, |kernel, _, Numbered { id }| insight::dead(kernel, false, id).await;

    WHOAMI(Nothing) needs Read, |_, by, _| Ok::<_, Fault>(tokens::whoami(by));
    TOKENS_LIST(Nothing) needs Operate, |kernel, _, _| tokens::list(kernel).await;
    TOKENS_NEW(_) needs Operate, |kernel, by, ask| tokens::new(kernel, by, ask).await;
    TOKENS_PROMISE(_) needs Operate, |kernel, by, ask| tokens::promise(kernel, by, ask);
    TOKENS_REDEEM(Named) needs Read, |kernel, _, Named { id }| tokens::redeem(kernel, &id).await;
    TOKENS_REVOKE(Named) needs Operate, |kernel, _, Named { id }| tokens::revoke(kernel, id).await;
    TOKENS_LEAVE(Nothing) needs Read, |kernel, by, _| tokens::leave(kernel, by).await;

    PEOPLE_LIST(Nothing) needs Operate, |kernel, _, _| people::list(kernel).await;
    PEOPLE_ANSWER(_) needs Operate, |kernel, by, answer| people::answer(kernel, by, answer).await;
    PEOPLE_REVOKE(Named) needs Operate, |kernel, by, Named { id }| people::revoke(kernel, by, &id).await;
};

/// Answers one request.
pub async fn call(kernel: &Arc<Kernel>, by: &Principal, name: &str, params: &RawValue) -> Answer {
    let Some(method) = METHODS.iter().find(|method| method.name == name) else {
        streams::refuse(name)?;
        return Err(Fault::unsupported(name)
            .help("the daemon may be older than the client: `drupe restart` after an upgrade"));
    };
    by.needs(method.needs, name)?;
    (method.run)(kernel, by, params).await
}

/// The file to which turns of a session were written that are deleted; none where there is none.
fn archived(kernel: &Kernel, id: &SessionId) -> Option<String> {
    let folder = kernel.base.config.journal.retention.archive.folder(kernel.base.home.root())?;
    let file = archive_file(&folder, id);
    file.is_file().then(|| file.display().to_string())
}

fn no_session(id: &SessionId) -> Fault {
    Fault::not_found(format!("there is no session `{id}`")).help("`drupe session list` shows them")
}

/// For who asks for what is not there, and may have gone.
async fn found<T>(kernel: &Kernel, asked: Result<T, Fault>) -> Result<T, Fault> {
    match asked {
        Err(fault) if fault.code == FaultCode::NotFound => {
            let gone = kernel.store.gone().await?;
            let mut message = gone.map_or(fault.message.clone(), |gone| gone.may_hold(&fault.message));
            match kernel.store.deletions().await? {
                0 => {}
                1 => message.push_str(", or it went with a session that was deleted"),
                many => {
                    message.push_str(&format!(", or it went with one of {many} sessions that were deleted"))
                }
            }
            Err(Fault { message, ..fault })
        }
        other => other,
    }
}

/// The same for who names a session: one that was deleted is not one that never was.
async fn named(kernel: &Kernel, by: &Principal, id: &str, fault: Fault) -> Fault {
    if fault.code != FaultCode::NotFound || !SessionId::new(id).is_ok_and(|id| by.sees(&id)) {
        return fault;
    }
    match kernel.store.deleted(id).await {
        Ok(Some(at)) => Fault::not_found(format!("session `{id}` was deleted at {at}")),
        _ => fault,
    }
}

pub(super) fn take<T: DeserializeOwned>(params: &RawValue) -> Result<T, Fault> {
    serde_json::from_str(params.get())
        .map_err(|error| Fault::invalid(format!("the parameters cannot be read: {error}")))
}

fn give(value: impl Serialize) -> Answer {
    to_raw_value(&value).map_err(Fault::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_is_documented_with_what_it_needs() {
        let docs = include_str!("../../../docs/reference/control.md");
        let streams = streams::STREAMS.iter().map(|stream| (stream.name, stream.needs));
        for (name, needs) in METHODS.iter().map(|method| (method.name, method.needs)).chain(streams) {
            let row = docs.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
            let row = row.unwrap_or_else(|| panic!("`{name}` has no row"));
            let last = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap_or_default().trim();
            assert_eq!(last, needs.name(), "{name}: {row}");
        }
    }
}
