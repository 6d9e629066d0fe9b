//! The same call over and over: first a warning to the model, then the end of the run.
//!
//! What counts is steps in a row that hold the call: several at once in one step may well be meant.

use std::collections::HashMap;

use drupe_extension_api::ToolCallRequest;

use crate::journal::sameness;

/// Steps in a row after which the model is warned.
const WARN: u32 = 3;

/// The step in a row whose calls do not run any more.
const END: u32 = 5;

/// In how many steps in a row, up to the last one, each call of that step stands.
#[derive(Default)]
pub(super) struct Repeats(HashMap<(String, String), u32>);

/// What follows from a step's calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Repeated {
    /// Nothing.
    Fine,
    /// The model is told that it repeats itself.
    Warn(String),
    /// The run ends; nothing of the step runs.
    End(String),
}

impl Repeats {
    /// Takes the calls of one more step in.
    pub(super) fn step(&mut self, calls: &[ToolCallRequest]) -> Repeated {
        let mut now = HashMap::with_capacity(calls.len());
        let mut worst: Option<(u32, &str)> = None;
        for call in calls {
            let key = (call.name.clone(), sameness(&call.arguments));
            let count = self.0.get(&key).copied().unwrap_or(0) + 1;
            if worst.is_none_or(|(most, _)| count > most) {
                worst = Some((count, &call.name));
            }
            now.insert(key, count);
        }
        self.0 = now;
        match worst {
            Some((END.., name)) => {
                Repeated::End(format!("it has called `{name}` with the same parameters {END} times in a row"))
            }
            Some((WARN, name)) => Repeated::Warn(format!(
                "You have called `{name}` with the same parameters {WARN} times in a row. The result will not change: \
                 do something else, or answer with what you have."
            )),
            _ => Repeated::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_call_in_steps_in_a_row_counts() {
        let call = |name: &str, arguments: &str| ToolCallRequest {
            call_id: String::new(),
            name: name.into(),
            arguments: arguments.into(),
        };
        let kinds = |steps: &[&[(&str, &str)]]| {
            let mut repeats = Repeats::default();
            let of = |step: &&[(&str, &str)]| {
                let calls: Vec<_> = step.iter().map(|(name, arguments)| call(name, arguments)).collect();
                match repeats.step(&calls) {
                    Repeated::Fine => '.',
                    Repeated::Warn(_) => 'w',
                    Repeated::End(_) => 'e',
                }
            };
            steps.iter().map(of).collect::<String>()
        };
        let (a, b, c): ((_, _), (_, _), (_, _)) = (("a", "{}"), ("a", "{\"n\":1}"), ("c", "{}"));
        assert_eq!(kinds(&[&[a], &[a], &[a], &[a], &[a]]), "..w.e");
        assert_eq!(kinds(&[&[a, a, a, a, a]]), ".");
        assert_eq!(kinds(&[&[a], &[a], &[b], &[a], &[a]]), ".....");
        assert_eq!(kinds(&[&[a, c], &[b, c], &[a, c], &[b, c], &[c]]), "..w.e");
    }
}
