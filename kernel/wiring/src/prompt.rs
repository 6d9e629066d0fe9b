//! The texts of agents, and the day that stands in them.

use std::{fmt, path::Path, sync::Arc};

use drupe_config::{
    AgentSection,
    instructions::{self, Source, Template},
};
use jiff::Timestamp;
use serde_json::{Map, Value};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// A day of the calendar, in UTC. Prompts have the day and not the moment, so that their bytes stay the same for a
/// provider's cache as long as it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day(i64);

impl Day {
    /// The day of a moment, in milliseconds since 1970.
    pub fn of(now_ms: i64) -> Self {
        Self(now_ms.div_euclid(DAY_MS))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let began = Timestamp::from_millisecond(self.0.saturating_mul(DAY_MS)).unwrap_or(Timestamp::MAX);
        write!(f, "{}", began.strftime("%Y-%m-%d"))
    }
}

/// The texts of an agent.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    /// The system prompt.
    pub instructions: String,
    /// Given before the task.
    pub context: Vec<String>,
    /// How the system prompt is made for another day, where it differs from day to day.
    pub dated: Option<Arc<Dated>>,
}

/// A template in which the day stands.
#[derive(Debug)]
pub struct Dated {
    template: Template,
    variables: Map<String, Value>,
    day: Day,
}

impl Prompt {
    /// The texts of an agent's manifest, rendered for a day.
    pub fn of(
        section: &AgentSection,
        folder: &Path,
        variables: Map<String, Value>,
        day: Day,
    ) -> Result<Self, String> {
        let context = instructions::context(&section.context)?;
        let source = match &section.instructions {
            Some(instructions) => instructions::source(instructions, folder)?,
            None => Source::Text(String::new()),
        };
        let template = match source {
            Source::Text(instructions) => return Ok(Self { instructions, context, dated: None }),
            Source::Template(template) => *template,
        };
        let dated = Dated { template, variables, day };
        let instructions = dated.text(day)?;
        // What is the same on any other day need not be kept.
        let changes = dated.text(Day(day.0 + 1)).as_ref() != Ok(&instructions);
        Ok(Self { instructions, context, dated: changes.then(|| Arc::new(dated)) })
    }

    /// The system prompt on another day; none where it is the same.
    pub(crate) fn on(&self, day: Day) -> Option<Result<String, String>> {
        let dated = self.dated.as_ref().filter(|dated| dated.day != day)?;
        Some(dated.text(day))
    }
}

impl Dated {
    fn text(&self, day: Day) -> Result<String, String> {
        let mut variables = self.variables.clone();
        variables.insert("now".into(), day.to_string().into());
        self.template.render(&variables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_date() {
        assert_eq!(Day::of(0).to_string(), "1970-01-01");
        assert_eq!(Day::of(-1).to_string(), "1969-12-31");
        assert_eq!(Day::of(1_795_478_399_999).to_string(), "2026-11-23");
        assert_eq!(Day::of(1_795_478_400_000).to_string(), "2026-11-24");
    }
}
