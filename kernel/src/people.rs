//! People who write through channels: whether the operator knows them, in which conversations they speak, and whose answers to
//! questions count.
//!
//! A channel says who wrote; that it is somebody whom the operator let in is decided here, for all channels whose manifest has
//! `senders: known`, so that none of them can be lax about it. Where their configuration names those who are `allowed`, these alone
//! are known. Otherwise whoever writes first is given a code, and the operator is told.

use std::sync::Arc;

use drupe_agent::one_line;
use drupe_config::Senders;
use drupe_extension_api::{
    ExtensionId, Fault, FaultCode, SessionId,
    control::{PersonState, PersonStatus},
    wire::{LONGEST_SENDER, Sender},
};
use drupe_gate::printable::whole;
use drupe_journal::{Asked, Origin};
use drupe_link::named_token;

use crate::kernel::Kernel;

/// The longest name of somebody that is kept and shown, in bytes.
const LONGEST_NAME: usize = 64;

/// What codes are made of: what a person can read out, and nobody takes for another letter.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// The key of a channel's configuration that names those who are known, in place of codes.
const ALLOWED: &str = "allowed";

/// Somebody who wrote a message, and may.
pub struct KnownWriter {
    pub origin: Origin,
    /// As the audit names them.
    pub name: String,
    /// Whether their answers to questions count.
    pub may_approve: bool,
}

/// Who is known in a channel.
enum Known {
    Everybody,
    /// Those whom its configuration names.
    These(Vec<String>),
    /// Those whom the operator let in.
    Paired,
}

/// Who is known in a channel, by its manifest and its configuration.
fn known_in(kernel: &Kernel, channel: &ExtensionId) -> Result<Known, Fault> {
    let found = kernel.roster.extensions.read(|record| {
        let is_it = record.found.name == channel.as_str();
        record.manifest.as_ref().filter(|_| is_it).map(|it| (!record.state.is_out(), Arc::clone(it)))
    });
    // Of one that begins or ends nobody slips in meanwhile: the stricter of two holds.
    let found = found.into_iter().flatten();
    let found = found.max_by_key(|(works, manifest)| (*works, manifest.senders == Senders::Known));
    let (_, manifest) = found.ok_or_else(|| {
        Fault::new(FaultCode::Unavailable, format!("extension `{channel}` does not work at the moment"))
    })?;
    if manifest.senders == Senders::Any {
        return Ok(Known::Everybody);
    }
    let config = manifest.effective_config(&kernel.base.config).map_err(Fault::internal)?;
    let Some(allowed) = config.get(ALLOWED).filter(|allowed| !allowed.is_null()) else {
        return Ok(Known::Paired);
    };
    let ids = allowed.as_array().into_iter().flatten();
    Ok(Known::These(ids.map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned)).collect()))
}

/// What is known of somebody, without giving them a code: none where they are not known.
async fn standing(kernel: &Kernel, channel: &ExtensionId, sender: &Sender) -> Result<Option<bool>, Fault> {
    let id = format!("{channel}/{}", sender.id);
    let named = kernel.base.config.approvals.people.contains(&id);
    Ok(match known_in(kernel, channel)? {
        Known::Everybody => Some(named),
        Known::These(ids) => ids.contains(&sender.id).then_some(named),
        Known::Paired => {
            let person = kernel.store.person(channel.to_string(), sender.id.clone()).await?;
            person
                .filter(|person| person.state == PersonState::Allowed)
                .map(|person| named || person.may_approve)
        }
    })
}

/// Whether somebody is answered in a channel. Who is not, and may ask to be, gets a code.
pub async fn admit(kernel: &Kernel, channel: &ExtensionId, sender: &Sender) -> Result<Asked, Fault> {
    check(sender)?;
    if let Some(may_approve) = standing(kernel, channel, sender).await? {
        return Ok(Asked::Known { may_approve });
    }
    if !matches!(known_in(kernel, channel)?, Known::Paired) {
        return Ok(Asked::Unknown);
    }
    let name = sender.name.as_deref().map(|name| whole(&one_line(name, LONGEST_NAME)));
    let sender = Sender { name: name.filter(|name| !name.trim().is_empty()), ..sender.clone() };
    let asked = kernel.store.ask_about(channel.to_string(), sender.clone(), new_code()?).await?;
    if let Asked::Waiting { code, is_new: true, .. } = &asked {
        let name = sender.name.as_deref().map(|name| format!("{name}, ")).unwrap_or_default();
        let text = format!(
            "somebody new wrote in `{channel}`: {name}`{}`. `drupe pair allow {code}` lets them in, `drupe pair deny {code}` keeps them out",
            sender.id
        );
        tracing::warn!(%channel, sender = sender.id, code, "somebody new wrote, and waits for `drupe pair`");
        // Where nobody has written yet, `drupe status` says it.
        let _ = kernel.outbox.tell(None, text).await;
    }
    Ok(asked)
}

/// Who wrote a message of a channel; none where it says nothing of it and need not.
///
/// # Errors
/// A message that must say who wrote it and does not, somebody who is not known, and a conversation that is not theirs.
pub async fn writer(
    kernel: &Kernel,
    channel: &ExtensionId,
    sender: Option<&Sender>,
    session: &SessionId,
) -> Result<Option<KnownWriter>, Fault> {
    let Some(sender) = sender else {
        return match known_in(kernel, channel)? {
            Known::Everybody => Ok(None),
            Known::These(_) | Known::Paired => {
                Err(Fault::invalid("the message does not say who wrote it").help("set `sender`"))
            }
        };
    };
    check(sender)?;
    let id = format!("{channel}/{}", sender.id);
    let Some(may_approve) = standing(kernel, channel, sender).await? else {
        let message = format!("the operator does not know `{id}`, so nothing of theirs is answered");
        return Err(Fault::new(FaultCode::Unauthenticated, message)
            .help("`people.admit` says what they are to be shown, if anything"));
    };
    let place = session.below(channel.as_str()).unwrap_or_default().split(':').next().unwrap_or_default();
    if place.strip_prefix("person.") != Some(&sender.id) && !place.starts_with("group.") {
        let message = format!("`{id}` does not speak in session `{session}`");
        return Err(Fault::denied(message).help(format!(
            "their own sessions begin with `{channel}:person.{}`, those of several people with `{channel}:group.`",
            sender.id
        )));
    }
    let origin = Origin::Person { channel: channel.clone(), id: sender.id.clone() };
    Ok(Some(KnownWriter { origin, name: format!("`{id}`"), may_approve }))
}

/// Whether an answer of somebody who reads a session's questions can count there.
pub async fn may_answer_in(kernel: &Kernel, session: &SessionId) -> Result<bool, Fault> {
    let (channel, place) = session.as_str().split_once(':').unwrap_or((session.as_str(), ""));
    let place = place.split(':').next().unwrap_or_default();
    let Ok(channel) = ExtensionId::new(channel) else { return Ok(false) };
    if let Some(id) = place.strip_prefix("person.") {
        let sender = Sender { id: id.to_owned(), name: None };
        return Ok(standing(kernel, &channel, &sender).await.ok().flatten() == Some(true));
    }
    let of_channel = |id: &str| id.split_once('/').is_some_and(|(of, _)| of == channel.as_str());
    let named = kernel.base.config.approvals.people.iter().any(|id| of_channel(id));
    let all = kernel.store.people(kernel.base.clock.now_ms()).await?;
    let paired = |person: &PersonStatus| person.may_approve && of_channel(&person.id);
    Ok(place.starts_with("group.") && (named || all.iter().any(paired)))
}

fn check(sender: &Sender) -> Result<(), Fault> {
    if sender.is_sound() {
        return Ok(());
    }
    let message = format!("`{}` cannot be the id of a sender", one_line(&sender.id, LONGEST_NAME));
    Err(Fault::invalid(message).help(format!("take 1 to {LONGEST_SENDER} letters, digits, `_`, `.` and `-`")))
}

/// Eight letters, in two groups. With the hour that one holds and the operator between, nobody finds another's.
fn new_code() -> Result<String, Fault> {
    let random = named_token().map_err(Fault::internal)?;
    let digits = random.rsplit('_').next().unwrap_or_default().as_bytes();
    let letters = digits.chunks_exact(2).take(8).map(|pair| {
        let byte = std::str::from_utf8(pair).ok().and_then(|pair| usize::from_str_radix(pair, 16).ok());
        char::from(LETTERS[byte.unwrap_or_default() % LETTERS.len()])
    });
    let mut code: String = letters.collect();
    code.insert(4, '-');
    Ok(code)
}

/// A code as it was given out, however it is written.
pub fn read_code(text: &str) -> String {
    let mut code: String =
        text.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_uppercase()).collect();
    if code.len() == 8 {
        code.insert(4, '-');
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_letters_that_nobody_confuses_and_is_read_however_it_is_written() {
        let code = new_code().expect("there is randomness");
        assert_eq!((code.len(), code.as_bytes()[4]), (9, b'-'));
        assert!(!code.contains(['0', 'O', '1', 'I']), "{code}");
        assert_ne!(code, new_code().expect("there is randomness"));
        for written in
            [code.to_ascii_lowercase(), code.replace('-', ""), format!(" {} ", code.replace('-', " "))]
        {
            assert_eq!(read_code(&written), code);
        }
        assert_eq!(read_code("x"), "X");
    }
}
