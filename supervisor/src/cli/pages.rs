//! `drupe completions` and `drupe man`: generated from the command line itself.

use super::{Context, failure::Failure};

/// Arguments of `drupe completions`.
#[derive(Debug, clap::Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Arguments of `drupe man`.
#[derive(Debug, clap::Args)]
pub struct Man {
    /// The verb that it is about, such as `ext check`; drupe itself by default
    #[arg(value_name = "VERB", num_args = 0..)]
    verb: Vec<String>,
}

impl Completions {
    pub fn execute(self, context: &Context, mut command: clap::Command) -> Result<u8, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "drupe", &mut script);
        context.console.print(&String::from_utf8_lossy(&script))?;
        Ok(0)
    }
}

impl Man {
    pub fn execute(self, context: &Context, mut command: clap::Command) -> Result<u8, Failure> {
        command.build();
        let mut page = &command;
        for word in &self.verb {
            page = page.find_subcommand(word).ok_or_else(|| {
                let message = format!("there is no verb `{}`", self.verb.join(" "));
                Failure::new(2, message).help("`drupe --help` shows the verbs")
            })?;
        }
        let mut text = Vec::new();
        clap_mangen::Man::new(page.clone()).render(&mut text)?;
        context.console.print(&String::from_utf8_lossy(&text))?;
        Ok(0)
    }
}
