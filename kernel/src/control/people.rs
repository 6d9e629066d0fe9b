//! People of channels, as the operator answers them: let in, kept out, forgotten.

use std::sync::Arc;

use drupe_extension_api::{
    ExtensionId, Fault,
    control::{PersonAnswer, PersonState, PersonStatus},
};
use drupe_journal::Origin;
use drupe_limits::TokenLimits;
use drupe_surface::principal::Principal;

use super::{tokens, turns};
use crate::{kernel::Kernel, people::read_code, settings};

/// Bounds what those use who are known, before anybody writes.
pub async fn load(kernel: &Kernel) -> Result<(), Fault> {
    for person in list(kernel).await? {
        bind(kernel, &person).await?;
    }
    Ok(())
}

/// Those who were answered, and those who wait.
pub async fn list(kernel: &Kernel) -> Result<Vec<PersonStatus>, Fault> {
    Ok(kernel.store.people(kernel.base.clock.now_ms()).await?)
}

/// What an operator is to know of those who wait.
pub async fn notice(kernel: &Kernel) -> Result<Option<String>, Fault> {
    let all = list(kernel).await?;
    let waiting = all.iter().filter(|person| person.state == PersonState::Waiting).count();
    let people = if waiting == 1 { "somebody new waits" } else { "new people wait" };
    Ok((waiting > 0)
        .then(|| format!("{people} to be answered: `drupe pair` shows who wrote, and in which channel")))
}

/// Lets whoever was shown a code in, or keeps them out.
pub async fn answer(kernel: &Kernel, by: &Principal, answer: PersonAnswer) -> Result<PersonStatus, Fault> {
    let code = read_code(&answer.code);
    tokens::check_amounts([answer.per_day])?;
    if !answer.allow && (answer.may_approve || !answer.per_day.is_empty()) {
        return Err(Fault::invalid("`may_approve` and `per_day` are for an answer that allows"));
    }
    let said = kernel.store.answer_person(PersonAnswer { code: code.clone(), ..answer }, by.name()).await?;
    let person = said.ok_or_else(|| {
        Fault::not_found(format!("nobody waits with the code `{code}`"))
            .help("a code holds for an hour; `drupe pair` lists those that wait")
    })?;
    bind(kernel, &person).await?;
    Ok(person)
}

/// Forgets what was said of somebody: what runs and waits for them ends, and they begin anew.
pub async fn revoke(kernel: &Arc<Kernel>, by: &Principal, id: &str) -> Result<PersonStatus, Fault> {
    let unknown = || {
        Fault::not_found(format!("nobody of the id `{id}` was answered")).help(
            "`drupe pair` lists them; whom `allowed` of a channel's configuration names is taken out there",
        )
    };
    let (channel, own) = id.split_once('/').ok_or_else(unknown)?;
    let channel = ExtensionId::new(channel).map_err(|_| unknown())?;
    let revoked = kernel.store.revoke_person(channel.to_string(), own.to_owned(), by.name()).await?;
    let person = revoked.ok_or_else(unknown)?;
    kernel.intake.turns.quotas.unbind(&person.id);
    let theirs = Origin::Person { channel, id: own.to_owned() };
    let open = kernel.store.unfinished().await?.into_iter();
    for queued in open.filter(|queued| queued.inbound.origin == theirs) {
        turns::stop_turn(kernel, &queued.turn).await?;
    }
    Ok(person)
}

async fn bind(kernel: &Kernel, person: &PersonStatus) -> Result<(), Fault> {
    let Some((channel, own)) = person.id.split_once('/') else { return Ok(()) };
    if person.state != PersonState::Allowed || person.per_day.is_empty() {
        return Ok(());
    }
    let limits = TokenLimits {
        sessions: format!("{channel}:person.{own}"),
        all: settings::allowance(&person.per_day),
        each: settings::allowance(&Default::default()),
    };
    tokens::bind(kernel, &person.id, limits).await
}
