//! A mailbox of the real Dovecot, in a folder and at a port of its own.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{unique, until};

/// Where Debian has it, which is in no usual path.
const DOVECOT: &str = "/usr/sbin/dovecot";

pub struct Dovecot {
    root: tempfile::TempDir,
    pub port: u16,
    greeting: String,
    master: Option<Child>,
}

impl Dovecot {
    /// A mailbox that is open for whoever has the password; none where there is no Dovecot, which it says.
    pub fn start(user_name: &str, password: &str) -> Option<Self> {
        if !Path::new(DOVECOT).exists() {
            println!("skipped: there is no `{DOVECOT}`, so there is no mailbox to read");
            return None;
        }
        // The port is free, and another program may take it before Dovecot does: then there is a next one.
        (0..5).find_map(|_| Self::at(free_port(), user_name, password))
    }

    fn at(port: u16, user_name: &str, password: &str) -> Option<Self> {
        let root = tempfile::Builder::new().prefix("dovecot").tempdir().expect("a temporary folder");
        let path = root.path().display().to_string();
        // It opens no mailbox for root, so where tests run as root another user has the mails.
        let is_root = rustix::process::getuid().is_root();
        let me = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let (uid, gid) = if is_root { (65534, 65534) } else { me };
        let user = if is_root { "nobody".to_owned() } else { me.0.to_string() };
        let group = if is_root { "nogroup".to_owned() } else { me.1.to_string() };
        let greeting = unique();
        let users = root.path().join("users");
        fs::write(&users, format!("{user_name}:{{PLAIN}}{password}\n")).expect("a file");
        for folder in ["mail", "mail/new", "mail/cur", "mail/tmp"] {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).expect("a folder");
            chown(&folder, Some(uid), Some(gid)).expect("it is its own");
        }
        // Whoever has the mails comes as far as these.
        fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("a mode");
        let config = format!(
            "base_dir = {path}/run\nstate_dir = {path}/state\nlog_path = {path}/log\nlisten = 127.0.0.1\nprotocols = imap\nssl = no\n\
             disable_plaintext_auth = no\ndefault_internal_user = {user}\ndefault_internal_group = {group}\ndefault_login_user = {user}\n\
             first_valid_uid = 1\nlogin_greeting = {greeting}\nmail_location = maildir:{path}/mail\n\
             passdb {{\n driver = passwd-file\n args = {path}/users\n}}\n\
             userdb {{\n driver = static\n args = uid={uid} gid={gid} home={path}/mail allow_all_users=yes\n}}\n\
             service imap-login {{\n chroot =\n inet_listener imap {{\n port = {port}\n }}\n inet_listener imaps {{\n port = 0\n }}\n}}\n\
             service anvil {{\n chroot =\n}}\nservice stats {{\n chroot =\n}}\n"
        );
        fs::write(root.path().join("dovecot.conf"), config).expect("a file");
        let mut mailbox = Self { root, port, greeting, master: None };
        mailbox.run().then_some(mailbox)
    }

    /// Starts it; false where another program has its port.
    pub fn run(&mut self) -> bool {
        let mut command = Command::new(DOVECOT);
        command.arg("-F").arg("-c").arg(self.root.path().join("dovecot.conf"));
        let mut master = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let greets = || match master.try_wait() {
            Ok(None) => self.greets().then_some(true),
            _ => Some(false),
        };
        let runs = until("it greets", greets).unwrap_or_else(|| panic!("{}", self.log()));
        self.master = Some(master);
        runs
    }

    fn greets(&self) -> bool {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.take(2).any(|line| line.contains(&self.greeting))
    }

    /// Ends it, with all connections: those that are open outlive it sometimes.
    pub fn end(&mut self) {
        let connections = self.connections();
        let Some(mut master) = self.master.take() else { return };
        let pid = i32::try_from(master.id()).ok().and_then(Pid::from_raw).expect("a pid");
        let _ = kill_process(pid, Signal::TERM);
        let _ = master.wait();
        for pid in connections {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Has it number its mails anew, as after a loss of its indexes; it must not run.
    pub fn forget_numbers(&self) {
        for entry in fs::read_dir(self.mails("")).expect("a folder").flatten() {
            if entry.file_name().to_string_lossy().starts_with("dovecot") {
                fs::remove_file(entry.path()).expect("it goes");
            }
        }
    }

    /// A mail comes in.
    pub fn deliver(&self, mail: &str) {
        // By these times it numbers what comes at once.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time");
        let name = format!("{}.M{}P1_{}.here", now.as_secs(), now.subsec_micros(), unique());
        let written = self.mails("tmp").join(&name);
        fs::write(&written, mail).expect("a file");
        fs::rename(written, self.mails("new").join(name)).expect("it comes in");
    }

    /// One that came an hour ago.
    pub fn deliver_old(&self, mail: &str) {
        let written = self.mails("new").join(unique());
        fs::write(&written, mail).expect("a file");
        let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
        fs::File::options()
            .append(true)
            .open(written)
            .and_then(|file| file.set_modified(an_hour_ago))
            .expect("a time");
    }

    /// How many mails are marked as read.
    pub fn seen(&self) -> usize {
        let all = fs::read_dir(self.mails("cur")).expect("a folder").flatten();
        let marks = |name: &str| name.rsplit_once(":2,").map_or(String::new(), |(_, marks)| marks.to_owned());
        all.filter(|entry| marks(&entry.file_name().to_string_lossy()).contains('S')).count()
    }

    /// How many are not.
    pub fn unread(&self) -> usize {
        let count = |folder: &str| fs::read_dir(self.mails(folder)).expect("a folder").flatten().count();
        // One that is moved meanwhile is counted in both places or in none.
        (count("new") + count("cur")).saturating_sub(self.seen())
    }

    /// Ends the connections that are open.
    pub fn cut(&self) {
        for pid in self.connections() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// The processes that have one each.
    fn connections(&self) -> Vec<Pid> {
        let Some(master) = self.master.as_ref().map(|master| master.id().to_string()) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for process in fs::read_dir("/proc").expect("there are processes").flatten() {
            let status = fs::read_to_string(process.path().join("status")).unwrap_or_default();
            let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if line("PPid:") == Some(master.as_str()) && line("Name:") == Some("imap") {
                found.extend(line("Pid:").and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw));
            }
        }
        found
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.root.path().join("log")).unwrap_or_default()
    }

    fn mails(&self, folder: &str) -> PathBuf {
        self.root.path().join("mail").join(folder)
    }
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        self.end();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}
