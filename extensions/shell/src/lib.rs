//! Commands in the workspace. Provides `shell_run`, and `shell_wait`, `shell_read`, `shell_stop` and `shell_list` for those in
//! the background.
//!
//! A command is asked about before each run, but where the operator chose otherwise, and what it may reach is bounded by the
//! system: the kernel starts it confined.
//! Nothing here looks into a command to tell whether it is harmless; that cannot be told.

mod background;
mod command;
mod config;
mod output;
mod plain;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use background::{Background, Job};
use command::{CommandLine, CommandReader, End, LiveOutput, Step};
use config::ShellConfig;
use drupe_extension_api::{ScopeKind, prelude::*, wire::RunProcess};
use futures_util::future::{Either, select};
use output::Excerpt;
use serde_json::Value;

struct Shell {
    host: Host,
    config: ShellConfig,
    background: Background,
    /// Whether the system keeps what commands are to leave as it is.
    keeps: bool,
}

impl Extension for Shell {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let mut config = ShellConfig::read(&host)?;
        let keeps = can_keep(&host).await?;
        if !keeps {
            if !config.keep.is_empty() {
                let kept = config.keep.join("`, `");
                host.warn(format!(
                    "commands can change `{kept}`: this system lets users have no mounts of their own"
                ));
            }
            config.keep.clear();
        }
        Ok(Shell { background: Background::new(config.clone()), host, config, keeps })
    }
}

/// Whether this system keeps files from being changed in what may be changed. A fault where it cannot confine commands.
async fn can_keep(host: &Host) -> Result<bool, Fault> {
    let home = host.data_folder().join("home");
    std::fs::create_dir_all(&home)?;
    // Where the operator lets programs run unconfined, one starts although nothing is kept: what it can do is what counts.
    let script = format!(": > probe && exit {CHANGED}");
    let tries = |keep: Vec<String>| RunProcess {
        spec: ProcessSpec {
            args: vec!["-c".to_owned(), script.clone()],
            keep,
            timeout_ms: Some(10_000),
            ..ProcessSpec::new("/bin/sh", &home)
        },
        max_output: 0,
    };
    let refused = |fault: &Fault| fault.code == FaultCode::Unavailable;
    match host.run_process(&tries(vec![home.display().to_string()])).await {
        Ok(output) => Ok(output.status != Some(CHANGED)),
        Err(fault) if refused(&fault) => match host.run_process(&tries(Vec::new())).await {
            Ok(_) => Ok(false),
            Err(fault) if refused(&fault) => {
                let message = format!("commands cannot be confined here: {}", fault.message);
                Err(Fault::new(FaultCode::NotConfigured, message)
                    .help("Landlock is needed, or `sandbox.allow_unconfined: true` in drupe.yaml"))
            }
            Err(fault) => Err(fault),
        },
        Err(fault) => Err(fault),
    }
}

/// Status of the program that finds out whether it can change what was to be kept, where it can.
const CHANGED: i32 = 3;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Run {
    /// The command line, for `/bin/sh -c`. The operator is shown all of it.
    command: String,
    /// The folder to run in, relative to the workspace; without it, the workspace.
    #[serde(default)]
    cwd: Option<String>,
    /// Whether it needs the network (TCP); without it, it has none.
    #[serde(default)]
    network: Option<bool>,
    /// Whether it runs in a terminal, for a program that behaves otherwise without one. Nobody types: what asks reads the end
    /// of its input. Its output comes as plain text.
    #[serde(default)]
    terminal: Option<bool>,
    /// Seconds after which it is stopped.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3600))]
    timeout_s: Option<u64>,
    /// Gives an id at once; the command goes on in the background.
    #[serde(default)]
    background: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wait {
    /// The id that shell_run gave it, such as `c1`.
    id: String,
    /// Seconds to wait for its end; 30 without it.
    #[serde(default)]
    #[schemars(range(min = 0, max = 600))]
    timeout_s: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Read {
    /// The id that shell_run gave it, such as `c1`.
    id: String,
    /// The first byte of its output to read; without it, the latest of the output is given.
    #[serde(default)]
    from: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Stop {
    /// The id that shell_run gave it, such as `c1`.
    id: String,
}

/// What is said of the output of a command that ran in a terminal.
const IN_TERMINAL: &str =
    " It ran in a terminal; of its output this is the text, each line as it was when it ended.";

/// The longest that one `shell_wait` waits.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

impl ToolProvider for Shell {
    fn tools(&self) -> Vec<Tool<Self>> {
        // The call ends after its command, so that what the command wrote is told.
        let longest = self.config.longest_time() + Duration::from_secs(30);
        let run = Tool::dynamic(self.run_spec(), Shell::run)
            .once()
            .destructive()
            .reads_untrusted()
            .item(ItemKind::CommandExecution)
            .needs_approval()
            .approval_scope("command", ScopeKind::Command, &["cwd", "network", "terminal"])
            .weight(4)
            .timeout(longest);
        let run = if self.config.network() { run.outward() } else { run };
        let run = if self.keeps { run.confined_without(&["network"]) } else { run };
        if self.config.background == 0 {
            return vec![run];
        }
        vec![
            run,
            Tool::new(
                "shell_wait",
                "Waits for the end of a command in the background, and gives the end of its output.",
                Shell::wait,
            )
            .read_only()
            .reads_untrusted()
            .item(ItemKind::CommandExecution)
            .timeout(LONGEST_WAIT + Duration::from_secs(30)),
            Tool::new("shell_read", "Gives output of a command in the background.", Shell::read)
                .read_only()
                .reads_untrusted()
                .item(ItemKind::CommandExecution),
            Tool::new(
                "shell_stop",
                "Stops a command in the background, with all that it started.",
                Shell::stop,
            )
            .idempotent()
            .item(ItemKind::CommandExecution),
            Tool::new("shell_list", "Lists the commands of this session in the background.", Shell::list)
                .read_only(),
        ]
    }
}

impl Service for Shell {
    async fn run(&self, shutdown: Shutdown) -> Result<(), Fault> {
        self.background.serve(&self.host, shutdown).await
    }
}

export!(Shell: Tool, Service);

impl Shell {
    /// `shell_run` as it can be called with this configuration: what would be refused is not offered.
    fn run_spec(&self) -> ToolSpec {
        let mut schema = schemars::schema_for!(Run).to_value();
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("$schema");
            schema.remove("title");
        }
        let left_out = [("network", self.config.network()), ("background", self.config.background > 0)];
        for (name, _) in left_out.iter().filter(|(_, offered)| !offered) {
            schema["properties"].as_object_mut().map(|properties| properties.remove(*name));
        }
        schema["properties"]["timeout_s"]["maximum"] = self.config.longest_time().as_secs().into();
        let network = if self.config.network() { "TCP where you ask for it" } else { "no network" };
        let kept = match self.config.keep.as_slice() {
            [] => String::new(),
            kept => format!(" It cannot change `{}`.", kept.join("`, `")),
        };
        ToolSpec {
            name: ToolName::new("shell_run").expect("it is a name"),
            description: format!(
                "Runs a command with `/bin/sh -c` in the workspace, for which the operator may have to agree first, and gives its \
                 output, standard error included, and its status. It reads the system's programs and the folders of skills, changes \
                 the workspace and nothing else, and has {network}, nothing to read and, but for `terminal`, no terminal; `/tmp` is `$TMPDIR`, and other \
                 processes are out of its sight.{kept} What it starts ends with it. Without `timeout_s` it has {} s.",
                self.config.usual_time(false).as_secs()
            ),
            input_schema: schema,
            instructions: None,
            annotations: ToolAnnotations::default(),
        }
    }

    async fn run(&self, input: Value, call: Call) -> Result<String, Fault> {
        let input: Run = serde_json::from_value(input)
            .map_err(|error| Fault::invalid(format!("the parameters do not fit: {error}")))?;
        let (background, network) = (input.background == Some(true), input.network == Some(true));
        let terminal = input.terminal == Some(true);
        command::check(&input.command)?;
        if network && !self.config.network() {
            return Err(Fault::denied("commands have no network here")
                .help("`extensions.shell.network: ask` in drupe.yaml"));
        }
        if background && self.config.background == 0 {
            return Err(Fault::denied("no command runs in the background here"));
        }
        let folder = command::folder(self.host.workspace(), &call.base_folder, input.cwd.as_deref())?;
        let asked = input.timeout_s.map(Duration::from_secs).unwrap_or(self.config.usual_time(background));
        if asked.is_zero() || asked > self.config.longest_time() {
            let most = self.config.longest_time().as_secs();
            return Err(Fault::invalid(format!("`timeout_s` is 1 to {most}")));
        }
        // One that outlives its call would be stopped with it, and nothing of it would be told.
        let left = command::left(&call, &self.host).filter(|_| !background);
        let time = left.map_or(asked, |left| asked.min(left));
        let command = CommandLine { text: &input.command, folder: &folder, network, terminal, time };
        if background {
            return self.begin(&call, &command).await;
        }
        let began = Instant::now();
        let process = command::start(&self.host, &self.config, &command).await?;
        let mut reading = CommandReader::new(process, self.config.written(), terminal);
        let (mut output, mut live) = (Excerpt::new(self.config.shown()), LiveOutput::new());
        let end = loop {
            match reading.next().await? {
                Step::Ended(end) => break end,
                Step::Wrote(bytes) => {
                    output.push(&bytes);
                    for piece in live.pieces(&bytes, Instant::now()) {
                        // Whoever watches sees less; the command goes on.
                        let _ = call.progress(piece).await;
                    }
                }
            }
        };
        let line = reading.line();
        drop(reading);
        output.push(line.as_bytes());
        for piece in live.pieces(line.as_bytes(), Instant::now()) {
            let _ = call.progress(piece).await;
        }
        let mut told = format!("The command {}.", end.told(began.elapsed(), &self.config, time));
        let late = matches!(&end, End::Exited(exit) if exit.timed_out);
        if late && time < asked {
            told += " It asked for more, but the run that called it has no more time.";
        }
        told += if terminal { IN_TERMINAL } else { "" };
        let failed = matches!(&end, End::Exited(exit) if exit.status.is_some_and(|status| status != 0));
        if failed && !network && self.config.network() {
            told += " It had no network; where it needs one, ask for `network`.";
        }
        Ok(match output.total() {
            0 => format!("{told} It wrote nothing."),
            total => format!("{told} It wrote {total} bytes:\n\n{}", output.text()),
        })
    }

    async fn begin(&self, call: &Call, command: &CommandLine<'_>) -> Result<String, Fault> {
        self.background.check_room(&call.session)?;
        let process = command::start(&self.host, &self.config, command).await?;
        let job = self.background.add(&call.session, command, process)?;
        Ok(format!(
            "The command runs in the background as `c{}`, for at most {} s. shell_wait waits for its end, shell_read gives \
             its output, shell_stop ends it.",
            job.id,
            command.time.as_secs()
        ))
    }

    async fn wait(&self, input: Wait, call: Call) -> Result<String, Fault> {
        let job = self.background.find(&call.session, &input.id)?;
        let asked = input.timeout_s.map_or(Duration::from_secs(30), Duration::from_secs).min(LONGEST_WAIT);
        let time = command::left(&call, &self.host).map_or(asked, |left| asked.min(left));
        let (ended, slept) = (std::pin::pin!(job.ended()), std::pin::pin!(self.host.sleep(time)));
        if let Either::Right((slept, _)) = select(ended, slept).await {
            slept?;
        }
        Ok(self.shown(&job, None))
    }

    async fn read(&self, input: Read, call: Call) -> Result<String, Fault> {
        let job = self.background.find(&call.session, &input.id)?;
        Ok(self.shown(&job, input.from))
    }

    async fn stop(&self, input: Stop, call: Call) -> Result<String, Fault> {
        let job = self.background.find(&call.session, &input.id)?;
        job.stop(End::Stopped);
        job.ended().await;
        Ok(self.shown(&job, None))
    }

    async fn list(&self, _: NoInput, call: Call) -> Result<String, Fault> {
        let lines: Vec<String> = self.background.of(&call.session).iter().map(|job| self.line(job)).collect();
        Ok(if lines.is_empty() { "no command runs in the background".to_owned() } else { lines.join("\n") })
    }

    fn line(&self, job: &Arc<Job>) -> String {
        let text = job.text.lines().next().unwrap_or_default();
        let shown = &text[..text.floor_char_boundary(200)];
        let mark = if shown.len() < job.text.len() { " …" } else { "" };
        format!("c{} {}: {shown}{mark}", job.id, job.told(&self.config))
    }

    /// The state of a command and a part of its output.
    fn shown(&self, job: &Job, from: Option<u64>) -> String {
        let mut state = format!("The command c{} {}.", job.id, job.told(&self.config));
        if job.terminal {
            state += IN_TERMINAL;
        }
        let line = match job.line() {
            line if line.is_empty() => line,
            line => {
                format!("\n[the line that it is writing, which has no end yet]\n{}", output::shortened(&line))
            }
        };
        let (part, first, total) = job.part(from, self.config.shown());
        if total == 0 {
            let what = if line.is_empty() { "nothing" } else { "no whole line" };
            return format!("{state} It wrote {what}.{line}");
        }
        let mut told = format!("{state} It wrote {total} bytes");
        if from.is_some_and(|from| from < first) {
            told += &format!(", of which the first {first} are not kept");
        }
        if part.text.is_empty() {
            return format!("{told}, and no more from byte {} on.{line}", part.from);
        }
        told += &format!("; bytes {} to {}:\n\n{}", part.from, part.to, part.text);
        if part.to < total {
            told += &format!("\n[go on with `from` {}]", part.to);
        }
        told + &line
    }
}

#[cfg(test)]
mod tests;
