//! The texts of agents: read, filled in where they are templates, and filled in anew when a new day stands in them.
//!
//! A template of an extension computes, and nobody agreed to what it computes: it is filled in by a
//! [process of its own](apart), which has little memory and time.

pub mod apart;
pub mod beneath;
mod day;
pub mod skills;
pub mod template;

use std::sync::{Arc, Mutex, PoisonError};

use drupe_agent::one_line;
use drupe_config::{
    AgentSection, Config, Instructions, Manifest, ORCHESTRATOR_PROMPT, instructions,
    instructions::UnreadableText,
};
use drupe_extension_api::ToolSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::day::Day;
use self::{
    skills::{Skill, Skills},
    template::{Filled, Template},
};

/// The longest description of a tool in a template, in bytes; what is beyond is cut.
const DESCRIPTION: usize = 1024;

/// Why an agent has no text, for people. The process that fills templates in hands it over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{0}")]
pub struct NoText(String);

impl NoText {
    fn new(why: String) -> Self {
        Self(why)
    }
}

impl From<UnreadableText> for NoText {
    fn from(error: UnreadableText) -> Self {
        Self(error.to_string())
    }
}

/// For those to whom it is a part of what they say.
impl From<NoText> for String {
    fn from(error: NoText) -> Self {
        error.0
    }
}

/// What fills a template in for some days.
pub type Fill<'a> = &'a dyn Fn(&Template, &[Day]) -> Result<Filled, NoText>;

/// The texts of an agent.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    pub instructions: String,
    pub context: Vec<String>,
    /// What it can load when it does such work.
    pub skills: Skills,
    /// How the system prompt is made for another day, where it differs from day to day.
    pub dated: Option<Arc<Dated>>,
}

/// A system prompt in which the day stands.
#[derive(Debug)]
pub struct Dated {
    template: Template,
    /// The day of the prompt that it stands beside.
    day: Day,
    /// What it is, or why it cannot be made, on the latest day that [`Dated::renew`] was asked for.
    later: Mutex<Option<(Day, Result<String, NoText>)>>,
}

/// The texts of an agent, for a day; `tools` are those that `uses_tools` names. None where it is no agent. May block as long
/// as `fill` does.
pub fn of(
    config: &Config,
    manifest: &Manifest,
    tools: &[ToolSpec],
    day: Day,
    fill: Fill<'_>,
) -> Result<Option<Prompt>, NoText> {
    let Some(section) = &manifest.agent else { return Ok(None) };
    let own = manifest.effective_config(config).map_err(|faults| NoText(faults.render(false)))?;
    let mut variables = own.clone();
    let tool =
        |tool: &ToolSpec| json!({"name": tool.name, "description": one_line(&tool.description, DESCRIPTION)});
    let facts = json!({
        "config": own,
        "manifest": {"id": manifest.id, "name": manifest.name, "version": manifest.version.to_string(),
                     "summary": manifest.summary, "description": manifest.description},
        "agent": {"id": manifest.id, "name": manifest.name, "description": manifest.description},
        "tools": tools.iter().map(tool).collect::<Vec<_>>(),
        "user": user(config),
    });
    if let Value::Object(facts) = facts {
        variables.extend(facts);
    }
    Prompt::of(section, manifest, variables, day, fill).map(Some)
}

fn not_filled() -> NoText {
    NoText("the template was not filled in".into())
}

/// The orchestrator's own texts. Its instructions are a template that is not filled in: what it is told of tools is only
/// known when they are wired.
pub fn orchestrator(config: &Config) -> Result<Prompt, NoText> {
    let settings = &config.orchestrator;
    let instructions = match &settings.instructions {
        None => ORCHESTRATOR_PROMPT.to_owned(),
        Some(Instructions::Inline(text) | Instructions::Template(text)) => text.clone(),
        Some(Instructions::File { path, .. }) => {
            instructions::read(path).map_err(|why| NoText(format!("`orchestrator.instructions`: {why}")))?
        }
    };
    let context = instructions::context(&settings.context)?;
    let skills = Skills::of(config);
    Ok(Prompt { instructions, context, skills, dated: None })
}

/// What a template calls the user.
pub fn user(config: &Config) -> &str {
    config.overlay.get("USER").map_or("the user", |user| user.expose())
}

impl Prompt {
    fn of(
        section: &AgentSection,
        manifest: &Manifest,
        variables: Map<String, Value>,
        day: Day,
        fill: Fill<'_>,
    ) -> Result<Self, NoText> {
        let context = instructions::context(&section.context)?;
        let mut skills = Skills::default();
        for folder in &manifest.skills {
            let skill = Skill::sealed(&manifest.folder.join(folder))
                .map_err(|why| NoText(format!("`skills`: {why}")))?;
            skills.all.insert(skill.name.clone(), Arc::new(skill));
        }
        let plain = |instructions: String| Self {
            instructions,
            context: context.clone(),
            skills: skills.clone(),
            dated: None,
        };
        let (named, source) = match &section.instructions {
            None => return Ok(plain(String::new())),
            Some(Instructions::Inline(text)) => return Ok(plain(text.clone())),
            Some(Instructions::File { path, template: false }) => {
                return Ok(plain(instructions::read(path)?));
            }
            Some(Instructions::Template(text)) => (String::new(), text.clone()),
            Some(Instructions::File { path, template: true }) => {
                (format!("`{}`: ", path.display()), instructions::read(path)?)
            }
        };
        let template = Template::new(named, source, &manifest.folder, variables);
        let filled = fill(&template, &[day, day.next()])?;
        let mut texts = filled.texts.into_iter();
        let (today, tomorrow) = (texts.next(), texts.next());
        let instructions = today.unwrap_or_else(|| Err(not_filled()))?;
        // What is the same on any other day need not be kept.
        let dated = (tomorrow.as_ref() != Some(&Ok(instructions.clone()))).then(|| {
            // An agreement to the included files was given for what they held at that time, so later days use the same content.
            let template = template.with_included(filled.included);
            let later = Mutex::new(tomorrow.map(|text| (day.next(), text)));
            Arc::new(Dated { template, day, later })
        });
        Ok(Self { instructions, context, skills, dated })
    }

    /// The system prompt on another day, or why it could not be made; none where it is the same, and where that day's was
    /// not asked for.
    pub fn on(&self, day: Day) -> Option<Result<String, NoText>> {
        let dated = self.dated.as_ref().filter(|dated| dated.day != day)?;
        let later = dated.later.lock().unwrap_or_else(PoisonError::into_inner);
        later.as_ref().filter(|(of, _)| *of == day).map(|(_, text)| text.clone())
    }
}

impl Dated {
    /// Whether the prompt of a day is yet to be made.
    pub fn lacks(&self, day: Day) -> bool {
        let later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        self.day != day && later.as_ref().is_none_or(|(of, _)| *of != day)
    }

    /// Makes the prompt of a day. May block as long as `fill` does.
    pub fn renew(&self, day: Day, fill: Fill<'_>) {
        let filled = fill(&self.template, &[day]);
        let text =
            filled.and_then(|filled| filled.texts.into_iter().next().unwrap_or_else(|| Err(not_filled())));
        *self.later.lock().unwrap_or_else(PoisonError::into_inner) = Some((day, text));
    }
}
