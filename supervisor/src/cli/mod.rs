//! What people and scripts type: a verb a file.
//!
//! Every verb but `run` is a client of a daemon or reads files. Nothing here knows how a daemon works: what a verb shows
//! is what the control API, `drupe-config`, or the code that asks models, says. Clients write no logs; facts go to the standard output, everything
//! else to the standard error stream.

mod agent;
mod approvals;
mod ask;
mod backup;
mod bus;
mod carried;
mod chat;
mod config;
mod doctor;
mod eval;
mod ext;
mod open;
mod owner;
mod pages;
mod pair;
mod replay;
mod restart;
mod restore;
mod run;
mod schedule;
mod secret;
mod secret_trial;
mod service;
mod session;
mod skill;
mod status;
mod stdio;
mod stop;
mod token;
mod trace;
mod until;
mod usage;
mod why;

mod activity;
mod client;
mod console;
mod environment;
mod failure;
mod figures;
mod fill;
mod hangup;
mod home;
mod import;
mod init;
mod markdown;
mod mcp;
mod mcp_login;
mod memory;
mod models;
mod start;
mod wait;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, CommandFactory, Parser, Subcommand, error::ErrorKind};
use drupe_link::Home;

pub use backup::make_backup;
use client::Daemon;
use console::Console;
pub use environment::Environment;
use failure::Failure;

/// An assistant that stays up.
///
/// Without a verb: starts the daemon if none runs for this home, then chats with it.
#[derive(Debug, Parser)]
#[command(name = "drupe", version, disable_help_subcommand = true)]
struct CommandLine {
    #[command(flatten)]
    global: Global,
    /// Without a verb: leave a daemon that was started for the chat running
    #[arg(long)]
    keep: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// What holds for every verb.
#[derive(Debug, Args)]
struct Global {
    /// The home; by default DRUPE_HOME, `sandbox/` of the checkout, or the data folder of the user
    #[arg(long, global = true, value_name = "FOLDER")]
    home: Option<PathBuf>,
    /// The configuration file; by default `drupe.yaml` of the home
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Set a home up: a provider of models and its key, which is tried, and the time zone
    ///
    /// Asks for what is not given. Where standard input is no terminal nothing is asked, and the key is read from it.
    Init(init::Init),
    /// Run the daemon in the foreground
    Run(run::Run),
    /// Chat with the running daemon
    Chat(chat::Chat),
    /// Ask one thing; the answer alone goes to the standard output
    Ask(ask::Ask),
    /// Show what the daemon is doing
    Status(Facts),
    /// Wait until the daemon is ready, or gone
    ///
    /// Ends with 0 once it is, with 69 where no daemon runs and none came, and with 75 where there is one that is not ready yet.
    Wait(until::WaitVerb),
    /// Restart the kernel after its running turns
    Restart(restart::Restart),
    /// End the daemon after its running turns
    Stop,
    /// Extensions: list, show, check, make, add, turn on and off
    #[command(subcommand)]
    Ext(ext::Ext),
    /// What waits for your agreement: list, allow, deny
    Approvals(approvals::Approvals),
    /// What is done at set times: list, show, add, remove, run, pause, resume
    Schedule(schedule::ScheduleVerbs),
    /// Agents: list, show, template for a new one
    #[command(subcommand)]
    Agent(agent::Agent),
    /// Sessions: list, show, export, stop
    #[command(subcommand)]
    Session(session::Session),
    /// Show what a session's turns set off: model calls, tool calls, sub-agents
    Trace(trace::Trace),
    /// Show what was used: tokens and cost
    Usage(usage::Usage),
    /// Say why something ended as it did
    Why(why::Why),
    /// Messages between extensions that were given up
    #[command(subcommand)]
    Bus(bus::Bus),
    /// Make a backup of the home: one file that `tar` opens, checked before it has its name
    Backup(backup::Backup),
    /// Make the home what it was when a backup was made; no daemon may run
    Restore(restore::Restore),
    /// Tokens for programs that are not the operator: list, new, revoke
    Token(token::Token),
    /// People who write through chat services: list, allow, deny, revoke
    Pair(pair::Pair),
    /// Ask messages of a file, and compare the answers with what it expects
    ///
    /// Each case of FILE has a conversation of its own. Ends with 1 where one fails.
    Eval(eval::Eval),
    /// Run a recorded session again without a model, and name the first difference
    ///
    /// Ends with 1 where there is one. With `--against`, another model is asked instead, and both are shown side by side.
    Replay(replay::Replay),
    /// Skills that models load: list, check
    #[command(subcommand)]
    Skill(skill::SkillVerbs),
    /// Secrets in `HOME/.env`: list, set, remove
    #[command(subcommand)]
    Secret(secret::SecretVerbs),
    /// A service of systemd: install, remove, status
    #[command(subcommand)]
    Service(service::ServiceVerbs),
    /// Print a link to the page, which signs a browser in once
    Open(open::Open),
    /// Serve an editor over the standard input and output, by the Agent Client Protocol
    Acp(stdio::Stdio),
    /// What is remembered over conversations: list, search, edit, forget, export
    Memory(memory::MemoryVerbs),
    /// Serve agents as tools by the Model Context Protocol, over standard input and output; with a verb, the servers whose tools
    /// agents have: servers, approve, refresh, import
    Mcp(mcp::McpVerbs),
    /// Take agents, skills and MCP servers of another assistant over: a plan first, and with `--apply` what it says
    Import(import::ImportFolder),
    /// Look at everything that can be wrong with this home, its machine and its daemon, and say what to do about it
    ///
    /// Writes nothing without `--fix`. Ends with 1 where something does not work.
    Doctor(doctor::Doctor),
    /// The configuration: show, schema, path
    #[command(subcommand)]
    Config(config::Config),
    /// Models: list what is configured, check whether it is there
    #[command(subcommand)]
    Models(models::Models),
    /// Print completions for a shell
    Completions(pages::Completions),
    /// Print a manual page
    Man(pages::Man),
}

/// For verbs that print facts.
#[derive(Debug, Clone, Copy, Args)]
struct Facts {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What every verb is given.
#[derive(Debug)]
struct Context {
    home: Home,
    /// The same as it was named, with its links.
    named: PathBuf,
    /// Whether the operator named it, by the command line or the environment.
    home_named: bool,
    /// Absolute.
    config: Option<PathBuf>,
    environment: Environment,
    here: PathBuf,
    exe: PathBuf,
    console: Console,
}

impl Context {
    fn new(global: Global, environment: Environment, console: Console) -> Result<Self, Failure> {
        let here = std::env::current_dir().map_err(|error| {
            Failure::new(failure::status::IO, format!("the current folder is gone: {error}"))
                .help("go to a folder that is there, then try again")
        })?;
        let exe = std::env::current_exe()?;
        let home_named = global.home.is_some() || environment.path("DRUPE_HOME").is_some();
        let named = home::find(global.home.as_deref(), &here, &exe, &environment)?;
        let home = Home::new(&named).map_err(|error| {
            let message = format!("`{}` cannot be a home: {error}", named.display());
            Failure::new(failure::status::CANNOT_CREATE, message).help("choose another home with `--home`")
        })?;
        let config = global.config.map(|file| here.join(file));
        let file = config.clone().unwrap_or_else(|| home.path().join("drupe.yaml"));
        for remark in environment.unreadable(&[file, home.path().join(".env")])? {
            console.remark(&remark);
        }
        Ok(Self { home, named, home_named, config, environment, here, exe, console })
    }

    fn home(&self) -> &Home {
        &self.home
    }

    fn daemon(&self) -> Daemon<'_> {
        Daemon::new(&self.home, self.console)
    }
}

/// Runs the command line of this process.
pub fn main(environment: Environment) -> ExitCode {
    let console = Console::new(&environment.text);
    let line = CommandLine::parse();
    if line.keep && line.verb.is_some() {
        let mut command = CommandLine::command();
        command.error(ErrorKind::ArgumentConflict, "`--keep` goes without a verb, or after `ask`").exit();
    }
    let outcome =
        Context::new(line.global, environment, console).inspect(carried::unpack).and_then(|context| {
            // What the machine's systemd is told is root's to say.
            if !matches!(line.verb, Some(Verb::Service(_))) {
                owner::go_on_as_the_owner(&context)?;
            }
            execute(line.verb, line.keep, context)
        });
    ExitCode::from(outcome.unwrap_or_else(|failure| {
        // Without a place to say it there is nobody to tell.
        let _ = io::stderr().write_all(failure.render(console.colour_err).as_bytes());
        failure.status
    }))
}

fn execute(verb: Option<Verb>, keep: bool, context: Context) -> Result<u8, Failure> {
    match verb {
        None => chat::with_daemon(keep, &context),
        Some(Verb::Init(init)) => init.execute(&context),
        Some(Verb::Run(run)) => run.execute(context),
        Some(Verb::Chat(chat)) => chat.execute(&context),
        Some(Verb::Ask(ask)) => ask.execute(&context),
        Some(Verb::Status(facts)) => status::execute(&facts, &context),
        Some(Verb::Wait(until)) => until.execute(&context),
        Some(Verb::Restart(restart)) => restart.execute(&context),
        Some(Verb::Stop) => stop::execute(&context),
        Some(Verb::Ext(ext)) => ext.execute(&context),
        Some(Verb::Approvals(approvals)) => approvals.execute(&context),
        Some(Verb::Schedule(schedule)) => schedule.execute(&context),
        Some(Verb::Agent(agent)) => agent.execute(&context),
        Some(Verb::Session(session)) => session.execute(&context),
        Some(Verb::Trace(trace)) => trace.execute(&context),
        Some(Verb::Usage(usage)) => usage.execute(&context),
        Some(Verb::Why(why)) => why.execute(&context),
        Some(Verb::Bus(bus)) => bus.execute(&context),
        Some(Verb::Backup(backup)) => backup.execute(&context),
        Some(Verb::Restore(restore)) => restore.execute(&context),
        Some(Verb::Token(token)) => token.execute(&context),
        Some(Verb::Pair(pair)) => pair.execute(&context),
        Some(Verb::Skill(skill)) => skill.execute(&context),
        Some(Verb::Eval(eval)) => eval.execute(&context),
        Some(Verb::Replay(replay)) => replay.execute(&context),
        Some(Verb::Secret(secret)) => secret.execute(&context),
        Some(Verb::Service(service)) => service.execute(&context),
        Some(Verb::Open(open)) => open.execute(&context),
        Some(Verb::Acp(stdio)) => stdio.execute("acp", &context),
        Some(Verb::Memory(memory)) => memory.execute(&context),
        Some(Verb::Mcp(mcp)) => mcp.execute(&context),
        Some(Verb::Import(import)) => import.execute(&context),
        Some(Verb::Doctor(doctor)) => doctor.execute(&context),
        Some(Verb::Config(config)) => config.execute(&context),
        Some(Verb::Models(models)) => models.execute(&context),
        Some(Verb::Completions(completions)) => completions.execute(&context, CommandLine::command()),
        Some(Verb::Man(man)) => man.execute(&context, CommandLine::command()),
    }
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
