//! Whose a home is. What root wrote there the daemon of another user could not read, and what lies there could lead root anywhere. So root goes
//! on as the user whose home it is; and a daemon that cannot use what lies in its home says so instead of trying again for ever.

use std::{
    fs, io,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

use drupe_kernel::shell_word;
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    io::Errno,
    process::geteuid,
};

use super::{
    Context,
    failure::{Failure, status},
};

/// Folders of the user who was left, which the other one cannot use.
const OF_THE_USER: [&str; 5] =
    ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];

/// Links that a path may lead through, as many as the system follows.
const LINKS: u32 = 40;

/// What a daemon reads and writes in its home.
const USED: [&str; 8] =
    ["", "data", "extensions", "journal.db", "journal.db-shm", "journal.db-wal", "run", "state"];

/// Where root asks and the home is another user's: runs the same command line once more, as that user with the home's group alone, and does not
/// return.
///
/// # Errors
/// It cannot be run as that user.
pub fn go_on_as_the_owner(context: &Context) -> Result<(), Failure> {
    let home = context.home().path();
    let Some((user, group)) = owner(&context.named, LINKS) else { return Ok(()) };
    if !geteuid().is_root() {
        return Ok(());
    }
    let account = UserEntry::of(user);
    context.console.remark(&format!("`{}` is {}'s: this goes on as that user", home.display(), account.name));
    #[expect(
        clippy::disallowed_methods,
        reason = "it takes the place of this process, so no child is started"
    )]
    let mut command = Command::new(&context.exe);
    command.args(std::env::args_os().skip(1)).uid(user).gid(group);
    // The same home, whatever would be found from that user's variables.
    command.env("DRUPE_HOME", &context.named);
    command.env("HOME", account.home.as_deref().map_or(home, Path::new)).env("USER", &account.name);
    for name in OF_THE_USER {
        command.env_remove(name);
    }
    let error = command.exec();
    let message = format!("`{}` cannot be run as {}: {error}", context.exe.display(), account.name);
    Err(Failure::new(status::FAILED, message)
        .help("put it where that user may run it, such as in `/usr/local`"))
}

/// Whose a path is, as it was named: the first user but root to whom something belongs that it leads through, and who could have made it lead
/// anywhere. Each link is followed as far as `links` allows.
fn owner(path: &Path, links: u32) -> Option<(u32, u32)> {
    path.ancestors().find_map(|path| {
        let found = fs::symlink_metadata(path).ok()?;
        if found.uid() != 0 && is_known_here(found.uid()) {
            return Some((found.uid(), found.gid()));
        }
        let target = fs::read_link(path).ok().filter(|_| links > 0)?;
        owner(&path.parent()?.join(target), links - 1)
    })
}

/// Whether a user can be gone on as: in a namespace of users most are nobody.
fn is_known_here(user: u32) -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().ok());
        let (from, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some(from..from + count)
    });
    // Without `/proc` there is no such namespace that anybody knows of.
    map.is_empty() || ranges.any(|range| range.contains(&user.into()))
}

/// Fails where something in the home may not be read or written by this user.
///
/// # Errors
/// The first such thing, and whose it is.
pub fn may_use(home: &Path) -> Result<(), Failure> {
    for name in USED {
        let path = home.join(name);
        let allowed = accessat(CWD, &path, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS);
        if allowed == Err(Errno::ACCESS) {
            return Err(refused(&path, home));
        }
    }
    Ok(())
}

fn refused(path: &Path, home: &Path) -> Failure {
    let user = geteuid().as_raw();
    let whose = fs::symlink_metadata(path).map_or_else(
        |error: io::Error| error.to_string(),
        |found| format!("it is {}'s, of mode {:o}", UserEntry::of(found.uid()).name, found.mode() & 0o777),
    );
    let message =
        format!("`{}` cannot be read and written by {}: {whose}", path.display(), UserEntry::of(user).name);
    Failure::new(status::CANNOT_CREATE, message)
        .help(format!("as root: `chown -R {user} {0} && chmod -R u+rwX {0}`", shell_word(home)))
}

/// What `/etc/passwd` says of a user.
struct UserEntry {
    name: String,
    home: Option<String>,
}

impl UserEntry {
    fn of(uid: u32) -> Self {
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let line = users
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.get(2).and_then(|number| number.parse().ok()) == Some(uid));
        let field = |at: usize| line.as_ref().and_then(|fields| fields.get(at)).map(|&text| text.to_owned());
        Self { name: field(0).unwrap_or_else(|| format!("user {uid}")), home: field(5) }
    }
}
