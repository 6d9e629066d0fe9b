//! A server that sends mails and is not ours: aiosmtpd, which keeps each as a file.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use super::{ADA, relay::SentMail};
use crate::harness::DRUPE;

/// Takes mails and keeps each as a file; says its port.
const PROGRAM: &str = r#"
import asyncio, sys
from aiosmtpd.handlers import Mailbox
from aiosmtpd.smtp import SMTP

async def main():
    serve = lambda: SMTP(Mailbox(sys.argv[1]), hostname="relay.example")
    server = await asyncio.get_running_loop().create_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"#;

pub struct Aiosmtpd {
    pub address: String,
    kept: tempfile::TempDir,
    program: Child,
}

impl Aiosmtpd {
    /// None where it is not installed, which it says.
    pub fn start() -> Option<Self> {
        let python = PathBuf::from(DRUPE).ancestors().nth(2).expect("a folder").join("aiosmtpd/bin/python");
        if !python.exists() {
            println!("skipped: there is no `{}`, which `.ci/run` makes", python.display());
            return None;
        }
        let kept = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new(python);
        command.args(["-c", PROGRAM]).arg(kept.path().join("mails")).stdout(Stdio::piped());
        let mut program = command.spawn().expect("it starts");
        let mut port = String::new();
        let says = program.stdout.take().expect("a pipe");
        BufReader::new(says).read_line(&mut port).expect("it says its port");
        Some(Self { address: format!("127.0.0.1:{}", port.trim()), kept, program })
    }

    /// The mails that it has whole.
    pub fn mails(&self) -> Vec<SentMail> {
        let files = fs::read_dir(self.kept.path().join("mails/new")).into_iter().flatten().flatten();
        let mails = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        mails.filter(|mail| mail.ends_with('\n')).map(|mail| SentMail::read(ADA, &mail)).collect()
    }
}

impl Drop for Aiosmtpd {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
