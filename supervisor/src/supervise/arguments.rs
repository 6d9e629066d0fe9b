//! What the supervisor tells a kernel on its command line, read and written in one place.

use std::{ffi::OsString, os::fd::RawFd, path::PathBuf};

use drupe_extension_api::AgentId;

/// The arguments of the `kernel` verb. The rest comes in the link's first frame.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct KernelArguments {
    #[arg(long)]
    pub home: PathBuf,
    /// Descriptor of the link to the supervisor.
    #[arg(long)]
    pub link_fd: RawFd,
    /// Descriptor of the listening control socket.
    #[arg(long)]
    pub control_fd: RawFd,
    /// Descriptor of the page that tells whose code ran when the kernel ended; none where there is no such page.
    #[arg(long)]
    pub blame_fd: Option<RawFd>,
    /// The configuration file that the operator named.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// The last good configuration takes its place.
    #[arg(long)]
    pub last_good: bool,
    /// An agent that the surfaces offer; all without any.
    #[arg(long = "agent")]
    pub agents: Vec<AgentId>,
    /// Log lines for people: the supervisor passes them on to a terminal.
    #[arg(long)]
    pub human_log: bool,
}

impl KernelArguments {
    /// The command line, with the verb.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["kernel".into(), "--home".into(), self.home.clone().into()];
        args.extend(["--link-fd".into(), self.link_fd.to_string().into()]);
        args.extend(["--control-fd".into(), self.control_fd.to_string().into()]);
        if let Some(fd) = self.blame_fd {
            args.extend(["--blame-fd".into(), fd.to_string().into()]);
        }
        if let Some(config) = &self.config {
            args.extend(["--config".into(), config.clone().into()]);
        }
        if self.last_good {
            args.push("--last-good".into());
        }
        for agent in &self.agents {
            args.extend(["--agent".into(), agent.as_str().into()]);
        }
        if self.human_log {
            args.push("--human-log".into());
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    enum Verb {
        Kernel(KernelArguments),
    }

    #[test]
    fn the_kernel_reads_what_the_supervisor_writes() {
        let agent = |id| AgentId::new(id).expect("a valid id");
        let all = KernelArguments {
            home: "/a home".into(),
            link_fd: 7,
            control_fd: 8,
            blame_fd: Some(9),
            config: Some("/etc/drupe.yaml".into()),
            last_good: true,
            agents: vec![agent("one"), agent("two")],
            human_log: true,
        };
        let few = KernelArguments {
            blame_fd: None,
            config: None,
            last_good: false,
            agents: vec![],
            human_log: false,
            ..all.clone()
        };
        for written in [all, few] {
            let args = [OsString::from("drupe")].into_iter().chain(written.to_args());
            let Verb::Kernel(read) = Verb::parse_from(args);
            assert_eq!(read, written);
        }
    }
}
