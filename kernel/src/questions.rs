//! Questions about calls in the channels from which people write: how they are put there, and the answers that come back.
//!
//! A question is a row that waits, whoever hears of it. Here whoever wrote the message is told of it, once, behind what went out
//! before; and a message that answers one goes to the question, beside the messages that wait for their turns. Who may answer is
//! the operator's to say: everybody who can write in a channel (`approvals.channels`), or somebody whom they know.

use std::{collections::HashSet, sync::Arc, time::Duration};

use drupe_extension_api::{
    EffectId, ExtensionId, Fault,
    control::{Approval, ApprovalState, AskedCall, CallPreview},
    wire::{Submit, Submitted},
};
use drupe_gate::printable::{one_a_line, whole};
use drupe_journal::{Says, StoreError};

use crate::{
    kernel::Kernel,
    people::{self, KnownWriter},
};

/// What a question may have for a message of a chat, in bytes: services cut longer ones or refuse them, and what is agreed to
/// must be read.
const LONGEST: usize = 2_000;

/// How long after a journal that did not take one it is tried again.
const AGAIN: Duration = Duration::from_secs(15);

/// Tells people of questions that wait, until the kernel closes.
pub async fn put_until_the_end(kernel: Arc<Kernel>) {
    let mut put = HashSet::new();
    let all = async {
        loop {
            match put_all(&kernel, &mut put).await {
                Ok(()) => kernel.intake.turns.policy.until_asked().await,
                Err(error) => {
                    tracing::warn!(%error, "a question that waits was not told to its channel");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    };
    kernel.life.closing.run_until_cancelled(all).await;
}

/// `put` holds what was told before, of those that wait.
async fn put_all(kernel: &Kernel, put: &mut HashSet<String>) -> Result<(), StoreError> {
    let all = kernel.intake.turns.policy.questions().await?;
    let all = all.iter().filter_map(|one| Some((one.listed(), one, one.call.as_ref()?)));
    let (waiting, settled): (Vec<_>, Vec<_>) =
        all.partition(|(_, one, _)| one.state == ApprovalState::Pending);
    for (key, one, call) in settled {
        if put.contains(&key) {
            settle(kernel, key, one, call).await?;
        }
    }
    put.retain(|key| waiting.iter().any(|(waits, ..)| waits == key));
    for (key, one, call) in waiting {
        if put.contains(&key) {
            continue;
        }
        let effect = EffectId::new(&one.id).map_err(|error| StoreError::Record(error.to_string()))?;
        let text = told(kernel, one, call).await;
        let copies = (call.session.clone(), kernel.outbox.copies(&call.session, &text));
        if kernel.store.tell_question(effect, key.clone(), text, copies).await? {
            kernel.outbox.wake();
        }
        put.insert(key);
    }
    Ok(())
}

/// Tells those who were asked what became of a question, wherever it was answered.
async fn settle(kernel: &Kernel, key: String, one: &Approval, call: &AskedCall) -> Result<(), StoreError> {
    let text = match one.state {
        ApprovalState::Allowed => format!("`{}` runs.", call.tool),
        ApprovalState::Expired => format!("`{}` does not run: nobody answered in time.", call.tool),
        _ => format!("`{}` does not run.", call.tool),
    };
    if kernel.store.tell_settled(key, text).await? {
        kernel.outbox.wake();
    }
    Ok(())
}

/// A question for whoever wrote to the agent, with how it is answered.
async fn told(kernel: &Kernel, one: &Approval, call: &AskedCall) -> String {
    let AskedCall { agent, tool, expires, .. } = call;
    let listed = one.listed();
    let head = format!("`{agent}` asks whether it may call `{tool}`: {}.", one.needs.join(", "));
    let until = format!("At {expires} it counts as denied.");
    // Which channel it is, its row knows; that it is one of those which may answer is asked again when an answer comes.
    let may_answer =
        call.session.as_str().split(':').next().is_some_and(|channel| is_trusted(kernel, channel))
            || people::may_answer_in(kernel, &call.session).await.unwrap_or(false);
    match (may_answer, shown(call)) {
        (true, Some(shown)) => {
            let lasting = call.about.as_ref().map(|about| {
                let about = whole(about);
                format!(" `allow {listed} session` allows calls of `{about}` in the rest of this conversation as well.")
            });
            let lasting = lasting.unwrap_or_default();
            format!("{head}\n{shown}\nAnswer `allow {listed}` or `deny {listed}`.{lasting} {until}")
        }
        (_, shown) => {
            let shown = shown.map(|shown| format!("\n{shown}")).unwrap_or_default();
            format!(
                "{head}{shown}\nThe operator answers it on the page, or by `drupe approvals allow {listed}`. {until}"
            )
        }
    }
}

/// All that a call would do. None where that is more than a message shows, or where something must be filled in.
fn shown(call: &AskedCall) -> Option<String> {
    let params = in_lines(&one_a_line(&call.params));
    let text = match &call.preview {
        Some(CallPreview { input: Some(_), .. }) => return None,
        Some(CallPreview { text, failed: false, .. }) => {
            format!("{params}\nIt says that this would change:\n{}", in_lines(text.trim_end()))
        }
        Some(CallPreview { text, failed: true, .. }) => {
            format!("{params}\nWhat would change cannot be shown: {}", in_lines(text.trim_end()))
        }
        None => params,
    };
    (text.len() <= LONGEST).then_some(text)
}

/// Lines of others, each without anything that would not be seen.
fn in_lines(text: &str) -> String {
    text.split('\n').map(whole).collect::<Vec<_>>().join("\n")
}

fn is_trusted(kernel: &Kernel, channel: &str) -> bool {
    kernel.base.config.approvals.channels.iter().any(|id| id.as_str() == channel)
}

/// Takes a message of a channel for the answer that it is, and tells its writer what came of it. None where it is any other
/// message: only one that names a question of its own conversation, as it was told there, is an answer.
pub async fn answered(
    kernel: &Kernel,
    channel: &ExtensionId,
    submit: &Submit,
    writer: Option<&KnownWriter>,
) -> Result<Option<Submitted>, Fault> {
    let Some((says, listed)) = read(&submit.text) else { return Ok(None) };
    let policy = &kernel.intake.turns.policy;
    let all = policy.questions().await?;
    let meant =
        all.iter().filter(|one| one.listed() == listed).find_map(|one| Some((one, one.call.as_ref()?)));
    let Some((one, call)) = meant.filter(|(_, call)| call.session == submit.session) else { return Ok(None) };
    let elsewhere = format!("the operator answers it on the page, or by `drupe approvals allow {listed}`");
    let is_of_strangers = submit.carried.as_ref().is_some_and(|carried| carried.untrusted);
    let counts = is_trusted(kernel, channel.as_str()) || writer.is_some_and(|writer| writer.may_approve);
    let said = if is_of_strangers || !counts {
        format!("Answers are not taken here: {elsewhere}.")
    } else if says != Says::No && one.state == ApprovalState::Pending && shown(call).is_none() {
        format!("It cannot be allowed here, where not all of it is shown: {elsewhere}.")
    } else {
        let by = match writer {
            Some(writer) => format!("person {}", writer.name),
            None => format!("channel `{channel}`"),
        };
        match policy.answer_question(&one.id, says, Some(one.hash.clone()), &by).await {
            Ok(settled) => {
                let one = settled.unwrap_or_else(|| one.clone());
                settle(kernel, one.listed(), &one, call).await?;
                return Ok(Some(Submitted { turn: call.turn.clone(), duplicate: false }));
            }
            Err(error) => format!("The answer was not taken: {error}"),
        }
    };
    kernel.outbox.tell(Some(submit.session.clone()), said).await?;
    Ok(Some(Submitted { turn: call.turn.clone(), duplicate: false }))
}

/// What a message says to which question, where it says no more than that.
fn read(text: &str) -> Option<(Says, &str)> {
    let mut words = text.split_whitespace();
    let (verb, listed, more) = (words.next()?, words.next()?, words.next());
    let says = match (verb.to_ascii_lowercase().as_str(), more.map(str::to_ascii_lowercase).as_deref()) {
        ("allow", None) => Says::Yes,
        ("allow", Some("session")) => Says::YesForSession,
        ("deny", None) => Says::No,
        _ => return None,
    };
    words.next().is_none().then_some((says, listed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_message_that_says_nothing_else() {
        assert_eq!(read("allow e-1:2"), Some((Says::Yes, "e-1:2")));
        assert_eq!(read(" Deny  e-1:2\n"), Some((Says::No, "e-1:2")));
        assert_eq!(read("ALLOW e-1:2 Session"), Some((Says::YesForSession, "e-1:2")));
        for other in [
            "allow",
            "",
            "allow e-1:2 please",
            "deny e-1:2 session",
            "do allow e-1:2",
            "allow e-1:2 session !",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    fn call(params: &str, preview: Option<CallPreview>) -> AskedCall {
        let call = serde_json::json!({
            "session": "mail:1", "turn": "t", "agent": "main", "tool": "remove", "params": params,
            "expires": "2026-01-01T00:10:00Z",
        });
        AskedCall { preview, ..serde_json::from_value(call).expect("a call") }
    }

    #[test]
    fn a_call_is_shown_whole_or_not_at_all_and_nothing_of_it_steers_whoever_reads() {
        let preview = |text: &str, input| Some(CallPreview { text: text.into(), failed: false, input });
        let all = shown(&call("{\"path\":\"a\u{202e}b\"}", preview("-x\n+y\u{1b}[2J\n", None)));
        assert_eq!(
            all.as_deref(),
            Some("{\n  \"path\": \"a\\u{202e}b\"\n}\nIt says that this would change:\n-x\n+y\\u{1b}[2J")
        );
        let long = format!("{{\"text\":\"{}\"}}", "x".repeat(LONGEST));
        assert_eq!(shown(&call(&long, None)), None);
        assert_eq!(shown(&call("{}", preview("a key", Some(serde_json::json!({}))))), None);
    }
}
