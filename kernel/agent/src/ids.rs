//! Ids that follow from a place in the tree, so that running something again finds what was recorded of it.

use drupe_extension_api::{AgentId, EffectId, InvocationId, TurnId};
use sha2::{Digest, Sha256};

/// The root run of a turn.
pub fn root_invocation(turn: &TurnId) -> InvocationId {
    InvocationId::new(format!("i-{}", digest(&["root", turn.as_str()])))
        .expect("a hex digest has the form of an id")
}

/// The run by which a further agent answers the message of a turn, from 1: the conversation went to it while the turn ran.
pub fn further_root(turn: &TurnId, n: u32) -> InvocationId {
    InvocationId::new(format!("i-{}", digest(&["root", turn.as_str(), &n.to_string()])))
        .expect("a hex digest has the form of an id")
}

/// The call at a place of a run.
pub fn effect(turn: &TurnId, invocation: &InvocationId, step: u32, index: u32) -> EffectId {
    let place =
        digest(&["effect", turn.as_str(), invocation.as_str(), &step.to_string(), &index.to_string()]);
    EffectId::new(format!("e-{place}")).expect("a hex digest has the form of an id")
}

/// The run that a call sets off.
pub fn child_of_effect(effect: &EffectId) -> InvocationId {
    InvocationId::new(format!("i-{}", digest(&["child", effect.as_str()])))
        .expect("a hex digest has the form of an id")
}

/// The call of an agent, beside the steps of a run, that a call of another tool has begun.
pub fn effect_of_effect(effect: &EffectId) -> EffectId {
    EffectId::new(format!("e-{}", digest(&["beside", effect.as_str()])))
        .expect("a hex digest has the form of an id")
}

/// The `n`-th run of an agent for the same task that code asks for. `asker` is the run or the call that the code works on
/// ([`Asker`](crate::Asker)); what is asked for is a part of the place, since code may ask for several things at once, in any order.
pub fn run_for_code(asker: &str, agent: &AgentId, task: &str, n: u32) -> InvocationId {
    let place = digest(&["run", asker, agent.as_str(), task, &n.to_string()]);
    InvocationId::new(format!("i-{place}")).expect("a hex digest has the form of an id")
}

/// The `n`-th call of a tool with the same arguments that code makes, likewise.
pub fn effect_for_code(asker: &str, tool: &str, arguments: &str, n: u32) -> EffectId {
    let place = digest(&["call", asker, tool, arguments, &n.to_string()]);
    EffectId::new(format!("e-{place}")).expect("a hex digest has the form of an id")
}

/// An attempt of a run to have a step answered by its model.
pub fn model_call(invocation: &InvocationId, step: u32, attempt: u32) -> String {
    format!("{invocation}.{step}.{attempt}")
}

/// Whether this can be the id of a run or a call: it has the form that all of them have.
pub fn is_derived(id: &str) -> bool {
    let place = id.strip_prefix("i-").or_else(|| id.strip_prefix("e-"));
    place.is_some_and(|place| {
        place.len() == 32 && place.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// 128 bits of it are enough that no two places meet.
fn digest(parts: &[&str]) -> String {
    let mut all = hashed(parts);
    all.truncate(32);
    all
}

/// SHA-256 over the parts, each after its length, in hex.
pub(crate) fn hashed(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hex(&hasher.finalize())
}

/// Lower-case hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
