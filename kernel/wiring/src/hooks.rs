//! The hooks of extensions: asked before and after turns, models, tools and sub-agents.
//!
//! A hook may block what it is asked about beforehand, and changes nothing else. One that is late or fails is passed
//! over, with a remark: what guards a turn must not be what stops it. One that is late again and again is not asked for a
//! while.

use std::{sync::Arc, time::Duration};

use drupe_agent::{HookAnswer, Hooks};
use drupe_extension_api::{
    ExtensionId, Fault, FaultCode,
    wire::{HookCall, HookPoint, HookVerdict, op},
};
use drupe_host::{Header, Instance, cut};
use futures_util::future::{BoxFuture, join_all};
use serde_json::Value;

use crate::{
    Lasting, Part,
    rests::{is_late, not_asked},
};

/// How long all hooks of one point may take together: they are asked at the same time.
const DEADLINE: Duration = Duration::from_secs(1);

/// Bytes of the reason for which a hook blocks, and of a remark on one that failed: each becomes part of an answer or an
/// event, again and again.
const REASON: usize = 2 * 1024;

/// All hooks, by the id of their extension.
#[derive(Default)]
pub struct HookSet {
    asked: Vec<Asked>,
    lasting: Arc<Lasting>,
}

struct Asked {
    id: ExtensionId,
    points: Vec<HookPoint>,
    instance: Arc<Instance>,
}

impl HookSet {
    pub(crate) fn of<'a>(parts: impl Iterator<Item = &'a Part>, lasting: &Arc<Lasting>) -> Self {
        let asked = parts.filter_map(|part| {
            let instance = Arc::clone(part.instance.as_ref()?);
            Some(Asked { id: part.id().clone(), points: part.description.hooks.clone(), instance })
        });
        let mut asked: Vec<Asked> = asked.collect();
        asked.sort_by(|a, b| a.id.cmp(&b.id));
        Self { asked, lasting: Arc::clone(lasting) }
    }
}

/// Whether a block at this point has anything to stop.
fn before(point: HookPoint) -> bool {
    matches!(
        point,
        HookPoint::TurnStart | HookPoint::BeforeModel | HookPoint::BeforeTool | HookPoint::BeforeAgent
    )
}

impl Hooks for HookSet {
    fn wants(&self, point: HookPoint) -> bool {
        self.asked.iter().any(|hook| hook.points.contains(&point))
    }

    fn call<'a>(&'a self, point: HookPoint, facts: Value) -> BoxFuture<'a, HookAnswer> {
        Box::pin(async move {
            let call = HookCall { point, facts };
            let mut answer = HookAnswer { blocked: None, remarks: Vec::new() };
            let mut asked = Vec::new();
            for hook in self.asked.iter().filter(|hook| hook.points.contains(&point)) {
                match self.lasting.live.rests.left(&hook.id, Some(point)) {
                    None => asked.push(hook),
                    Some(left) => answer.remarks.push(not_asked("the hook", &hook.id, left)),
                }
            }
            let verdicts = join_all(asked.iter().map(|hook| {
                let header = Header { timeout: Some(DEADLINE), ..Header::default() };
                hook.instance.call::<HookVerdict>(op::HOOK_ON, &call, header)
            }));
            // In the order of their ids, so that of two that block the same one is always named.
            for (hook, verdict) in asked.iter().zip(verdicts.await) {
                self.lasting.live.rests.answered(&hook.id, Some(point), is_late(&verdict));
                match verdict {
                    Ok(HookVerdict::Block { reason }) if before(point) => {
                        answer.blocked.get_or_insert_with(|| blocked(&hook.id, reason));
                    }
                    Ok(_) => {}
                    Err(fault) => answer.remarks.push(passed_over(&hook.id, point, &fault)),
                }
            }
            answer
        })
    }
}

fn blocked(id: &ExtensionId, reason: String) -> String {
    format!("blocked by `{id}`: {}", cut(reason, REASON))
}

fn passed_over(id: &ExtensionId, point: HookPoint, fault: &Fault) -> String {
    let point = serde_json::to_value(point).unwrap_or_default();
    let point = point.as_str().unwrap_or_default();
    match fault.code {
        FaultCode::Timeout => format!(
            "the hook of `{id}` did not answer within {} ms at `{point}` and was passed over",
            DEADLINE.as_millis()
        ),
        _ => {
            let fault = cut(fault.to_string(), REASON);
            format!("the hook of `{id}` failed at `{point}` and was passed over: {fault}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hook_gives_as_its_reason_is_cut_with_words() {
        let id: ExtensionId = "guard".parse().expect("an id");
        let long = "x".repeat(1 << 20);
        let fault = Fault::new(FaultCode::Other, long.clone());
        for told in [blocked(&id, long), passed_over(&id, HookPoint::TurnStart, &fault)] {
            assert!(told.len() < REASON + 200 && told.contains("cut here"), "{} bytes", told.len());
        }
        assert_eq!(blocked(&id, "no".into()), "blocked by `guard`: no");
    }
}
