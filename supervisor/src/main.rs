//! drupe: one binary, dispatched before anything else is done.
//!
//! A process is one of eight things: a program to be confined, a probe of a library, what fills a template in, the process
//! of an extension, what makes a backup for a kernel, a kernel, the supervisor, or a client of a daemon. The first six are
//! started by drupe itself and never read the command line of people.

mod cli;
mod supervise;

use std::{env, io, io::Write, path::Path, process::ExitCode};

use clap::Parser;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use supervise::KernelArguments;

/// What drupe gives to a kernel that it starts.
#[derive(Parser)]
enum Kernel {
    Kernel(KernelArguments),
}

fn main() -> ExitCode {
    undumpable();
    // A confined program must not pay for, or inherit, anything that is done for the others.
    let mut args = env::args_os();
    let verb = args.nth(1);
    let verb = verb.as_deref().and_then(|verb| verb.to_str()).unwrap_or_default();
    if verb == drupe_confine::VERB {
        drupe_confine::main(args);
    }
    if verb == drupe_host::probe::VERB
        && let Some(library) = args.next()
    {
        return ExitCode::from(drupe_host::probe::main(Path::new(&library)));
    }
    if verb == drupe_prompts::apart::VERB
        && let Some(folder) = args.next()
    {
        return ExitCode::from(drupe_prompts::apart::main(Path::new(&folder)));
    }
    if verb == drupe_host::child::VERB {
        return ExitCode::from(drupe_host::child::main(args));
    }
    if verb == drupe_kernel::backups::VERB {
        drupe_confine::take_name();
        return ExitCode::from(cli::make_backup());
    }
    if verb == "kernel" {
        let Kernel::Kernel(arguments) = Kernel::parse();
        return ExitCode::from(run_kernel(arguments));
    }
    cli::main(environment())
}

/// Memory of every role may hold keys: it is written to no file when a process crashes, and shown to no other process of
/// the same user. First of all, since `exec` takes the second part back.
fn undumpable() {
    // Lowering a limit and giving up a right are allowed to everybody; there would be nothing to do about a refusal.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// The kernel's process: its three descriptors are taken before anything is opened.
fn run_kernel(arguments: KernelArguments) -> u8 {
    // SAFETY: this process has just begun and owns nothing yet.
    let take = |number| unsafe { drupe_confine::inherited(number) };
    let descriptors = take(arguments.link_fd)
        .and_then(|link| Ok((link, take(arguments.control_fd)?)))
        .and_then(|(link, control)| Ok((link, control, arguments.blame_fd.map(take).transpose()?)));
    let (link, control, blame) = match descriptors {
        Ok(descriptors) => descriptors,
        Err(error) => {
            // EX_USAGE
            let _ = writeln!(io::stderr(), "drupe: `kernel` is started by the supervisor alone: {error}");
            return 64;
        }
    };
    drupe_kernel::main(drupe_kernel::Arguments {
        link,
        control,
        blame,
        config: arguments.config,
        last_good: arguments.last_good,
        home: arguments.home,
        agents: arguments.agents,
        environment: environment().text,
        human_log: arguments.human_log,
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the entry point")]
fn environment() -> cli::Environment {
    cli::Environment::new(env::vars_os())
}
