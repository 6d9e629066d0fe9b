//! The tool by which a model reads the instructions of a skill, once it does the work that the skill is for.
//!
//! Its text in the prompt has a line for each skill, so that a model knows which there are. Where skills lie and how they are
//! read is the business of whoever provides them.

use std::{collections::BTreeSet, fmt::Write, sync::Arc};

use drupe_extension_api::{EffectClass, EffectId, ToolAnnotations, ToolName, ToolSpec};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    registry::{Registered, RegistryError},
    run::Run,
    told::one_line,
    tool::{Tool, ToolContext, ToolError, ToolFuture, ToolOutput},
};

/// The name by which models call it.
pub const NAME: &str = "load_skill";

/// The most bytes of a skill's description in the prompt: more than the open format lets it have.
const DESCRIBED: usize = 1_200;

/// The most bytes of the lines of all skills; beyond that they have their names alone.
const LINES: usize = 16 << 10;

/// The skills that one agent can load.
pub trait SkillSource: Send + Sync {
    /// Their names with what they are for, in order.
    fn listed(&self) -> Vec<(String, String)>;

    /// Reads the instructions of one, or a file beneath it.
    fn read(&self, name: String, file: Option<String>) -> BoxFuture<'_, Result<String, ToolError>>;

    /// The hash of all that lies in its folder, in hex; none where it cannot be read.
    fn hash(&self, name: String) -> BoxFuture<'_, Option<String>>;

    /// The names of the tools that one leaves a run; none where it leaves it all that it has.
    fn allows(&self, name: &str) -> Option<BTreeSet<String>>;
}

struct LoadSkill {
    spec: Arc<ToolSpec>,
    skills: Arc<dyn SkillSource>,
}

#[derive(Deserialize)]
struct Parameters {
    name: String,
    #[serde(default)]
    file: Option<String>,
}

/// The tool for those skills; `by_strangers` tells that somebody may have written them whom nobody trusts.
///
/// # Errors
/// A text that no tool may have.
pub fn tool(skills: Arc<dyn SkillSource>, by_strangers: bool) -> Result<Arc<Registered>, RegistryError> {
    let spec = ToolSpec {
        name: ToolName::new(NAME).expect("the name has the form of one"),
        description: "Gives the instructions of a skill, or with `file` a file that they name.".into(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The skill."},
                "file": {"type": "string", "description": "A path beneath the skill's folder."},
            },
            "required": ["name"],
            "additionalProperties": false,
        }),
        instructions: Some(lines(&skills.listed())),
        annotations: ToolAnnotations {
            read_only: true,
            effect: EffectClass::Pure,
            described_by_strangers: by_strangers,
            reads_untrusted: by_strangers,
            ..ToolAnnotations::default()
        },
    };
    Registered::core(Arc::new(LoadSkill { spec: Arc::new(spec), skills }))
}

/// What the prompt says of skills.
fn lines(skills: &[(String, String)]) -> String {
    let mut text = "Skills are instructions for one kind of work. Where one fits the task, load it before you begin, and do as it \
                    says:\n"
        .to_owned();
    let all = |text: &mut String, described: bool| {
        for (name, description) in skills {
            let _ = match described {
                true => writeln!(text, "- {name}: {}", one_line(description, DESCRIBED)),
                false => writeln!(text, "- {name}"),
            };
        }
    };
    let begin = text.len();
    all(&mut text, true);
    if text.len() > LINES {
        text.truncate(begin);
        all(&mut text, false);
        text.truncate(text.floor_char_boundary(LINES));
    }
    text
}

impl LoadSkill {
    /// From now on the run has the tools that the skill leaves it.
    fn narrow(&self, name: &str, run: &Run) {
        if let Some(allowed) = self.skills.allows(name) {
            run.narrow(name, allowed);
        }
    }
}

impl Tool for LoadSkill {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let Parameters { name, file } = serde_json::from_str(params.get())?;
            let is_whole = file.is_none();
            let text = self.skills.read(name.clone(), file).await?;
            if is_whole {
                let hash = self.skills.hash(name.clone()).await;
                let key = (context.run.agent.clone(), name.clone());
                context.run.scope.used().skills.insert(key, hash);
                self.narrow(&name, &context.run);
            }
            Ok(ToolOutput::text(text))
        })
    }

    fn replayed(&self, (params, _): (&str, &str), _: &EffectId, run: &Arc<Run>) {
        if let Ok(Parameters { name, file: None }) = serde_json::from_str::<Parameters>(params) {
            // What it was then nobody knows any more.
            run.scope.used().skills.entry((run.agent.clone(), name.clone())).or_default();
            self.narrow(&name, run);
        }
    }
}
