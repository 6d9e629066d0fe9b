//! Answers of people: to calls of tools, with what they filled in, and to what extensions bring.

use std::sync::Arc;

use drupe_agent::{FilledForm, InputForm};
use drupe_config::{EnvFile, EnvFileFault};
use drupe_extension_api::{
    Fault,
    control::{Approval, ApprovalAnswer, ApprovalState, StandingGrant},
};
use drupe_gate::survey::nothing_waits;
use drupe_journal::Says;
use drupe_surface::principal::Principal;
use serde_json::{Map, Value};

use crate::{
    extension::{change, lifecycle},
    kernel::Kernel,
};

/// Agrees, or does not, to a tool call, or to what an extension brings.
pub async fn answer(kernel: &Arc<Kernel>, by: &Principal, answer: ApprovalAnswer) -> Result<Approval, Fault> {
    let ApprovalAnswer { id, allow, for_session, hash, values } = answer;
    let shown = || hash.clone();
    let policy = &kernel.intake.turns.policy;
    let mut meant = policy.questions().await?;
    meant.retain(|one| one.call.is_some() && one.id.starts_with(&id));
    for call in meant.iter().filter_map(|one| one.call.as_ref()) {
        by.reaches(&call.session)?;
    }
    let filled = values.is_some();
    let says = match (allow, for_session, values) {
        (false, false, None) => Says::No,
        (true, false, None) => Says::Yes,
        (true, true, None) => Says::YesForSession,
        (true, false, Some(values)) => {
            Says::Filled(fill(kernel, &meant, (&id, hash.as_deref()), values).await?)
        }
        (false, true, _) => {
            return Err(Fault::invalid("`for_session` is for an answer that allows").help("leave it out"));
        }
        (_, _, Some(_)) => {
            return Err(
                Fault::invalid("`values` are for an answer that allows one call").help("leave them out")
            );
        }
    };
    if let Some(call) = policy.answer_question(&id, says, shown(), &by.name()).await? {
        return Ok(call);
    }
    if for_session || filled {
        return Err(Fault::invalid(format!("`{id}` is no call of a tool that waits")).help(
            "`for_session` and `values` are for calls; what an extension brings is agreed to as a whole",
        ));
    }
    let give = || async { kernel.store.answer_activation(&id, allow, shown(), by.name()).await };
    let mut answered = give().await?;
    if answered.is_none() {
        // It may have come this moment, or where nothing is watched.
        change::rescan(&kernel.roster).await?;
        answered = give().await?;
    }
    let approval = answered.ok_or_else(|| nothing_waits(&id, kernel.roster.extensions.status(&id).ok()))?;
    change::rescan(&kernel.roster).await?;
    lifecycle::until_settled(&kernel.roster, &approval.extension).await?;
    Ok(approval)
}

/// What was filled in for the question that is meant, as its row keeps it. Secrets are kept first: a question that says it
/// was answered has its value.
async fn fill(
    kernel: &Kernel,
    meant: &[Approval],
    (id, shown): (&str, Option<&str>),
    values: Map<String, Value>,
) -> Result<String, Fault> {
    // By its whole id: what is kept is kept, whatever becomes of the answer.
    let one = meant.iter().find(|one| one.id == id && one.state == ApprovalState::Pending);
    let one = one.ok_or_else(|| {
        Fault::invalid(format!("no question with the whole id `{id}` waits for `values`"))
            .help("`drupe approvals` shows what waits, and the whole id of each")
    })?;
    let asked = one.call.as_ref().and_then(|call| call.preview.as_ref()?.input.as_ref());
    let Some(asked) = asked else {
        return Err(Fault::invalid(format!("`{}` asks for nothing to be filled in", one.id))
            .help("answer it without `values`"));
    };
    if shown.is_some_and(|shown| shown != one.hash) {
        return Err(Fault::invalid(format!("`{}` is not what was shown to you", one.id))
            .help("`drupe approvals` shows what it is now"));
    }
    let FilledForm { values, secrets } = InputForm::new(asked)?.fill(values)?;
    for (name, secret) in secrets {
        keep(kernel, name, secret).await?;
    }
    let given = serde_json::to_vec(&values).map_err(Fault::internal)?;
    Ok(String::from_utf8_lossy(&kernel.base.redactor.json(&given)).into_owned())
}

/// Keeps a secret. One that has a value keeps it: who asks for another may be a model that obeys a stranger.
async fn keep(kernel: &Kernel, name: String, secret: String) -> Result<(), Fault> {
    if kernel.base.config.overlay.get(&name).is_some() {
        return Err(has_a_value(&name));
    }
    kernel.base.redactor.learn([secret.as_str()]);
    let home = kernel.base.home.root().to_owned();
    let kept = move || {
        let failed = |error: EnvFileFault| Fault::invalid(error.to_string());
        let file = EnvFile::of(&home).map_err(failed)?;
        match file.names().contains(&name) {
            true => Err(has_a_value(&name)),
            false => file.set(&name, Some(&secret)).map_err(failed),
        }
    };
    // It waits for the disk, and for whoever changes the file.
    tokio::task::spawn_blocking(kept).await.map_err(Fault::internal)?
}

fn has_a_value(name: &str) -> Fault {
    Fault::invalid(format!("`{name}` has a value already, which stays"))
        .help(format!("deny this, or give it another value by `drupe secret set {name}`"))
}

/// Takes back what was allowed for the rest of a session.
pub async fn revoke_grant(kernel: &Kernel, by: &Principal, id: &str) -> Result<StandingGrant, Fault> {
    let nothing = || {
        Fault::not_found(format!("nothing that was allowed has the id `{id}`"))
            .help("`drupe approvals grants` lists what was")
    };
    let policy = &kernel.intake.turns.policy;
    let known = policy.grants().await?.into_iter().find(|grant| grant.id == id).ok_or_else(nothing)?;
    by.reaches(&known.session)?;
    policy.revoke_grant(id, &by.name()).await?.ok_or_else(nothing)
}
