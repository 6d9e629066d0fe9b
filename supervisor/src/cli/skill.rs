//! `drupe skill`: which skills there are, and whether one is well formed.

use std::path::PathBuf;

use drupe_config::load_skill;
use drupe_extension_api::control::{SkillStatus, method};

use super::{
    Context, Facts,
    console::{plain, short, table},
    failure::{Failure, status},
};

/// Characters of a description in the list.
const DESCRIBED: usize = 100;

/// The verbs of `drupe skill`.
#[derive(Debug, clap::Subcommand)]
pub enum SkillVerbs {
    /// List the skills that the orchestrator can load
    List(Facts),
    /// Say what is amiss in the folder of a skill, without a daemon
    Check(CheckedSkill),
}

#[derive(Debug, clap::Args)]
pub struct CheckedSkill {
    /// The folder that holds its `SKILL.md`
    folder: PathBuf,
}

impl SkillVerbs {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self {
            Self::List(facts) => {
                let list: Vec<SkillStatus> = context.daemon().get(method::SKILLS_LIST)?;
                match facts.json {
                    true => context.console.json(&list)?,
                    false if list.is_empty() => {
                        context.console.remark("there are no skills: a folder `skills/NAME` of the home with a `SKILL.md` is one");
                    }
                    false => context.console.draw(&lines(&list))?,
                }
                Ok(0)
            }
            Self::Check(CheckedSkill { folder }) => check(&folder, context),
        }
    }
}

fn check(folder: &std::path::Path, context: &Context) -> Result<u8, Failure> {
    // Its name is compared with that of the folder, which `.` does not say.
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    match load_skill(&folder) {
        Ok(loaded) => {
            if !loaded.warnings.is_empty() {
                context.console.remark_drawn(loaded.warnings.render(context.console.colour_err).trim_end());
            }
            if let Err(why) = drupe_prompts::skills::display(&folder) {
                context.console.remark(&why.to_string());
            }
            context.console.print(&format!("`{}` is a skill", loaded.value.head.name))?;
            Ok(0)
        }
        Err(faults) => {
            context.console.remark_drawn(faults.render(context.console.colour_err).trim_end());
            Err(Failure::said(status::CONFIG))
        }
    }
}

fn lines(list: &[SkillStatus]) -> String {
    let row = |skill: &SkillStatus| {
        let name = match &skill.display_name {
            Some(shown) => format!("{} ({})", plain(&skill.name), plain(shown)),
            None => plain(&skill.name),
        };
        let described = skill.short_description.as_ref().unwrap_or(&skill.description);
        vec![name, short(described, DESCRIBED), plain(&skill.folder)]
    };
    table(&list.iter().map(row).collect::<Vec<_>>())
}
