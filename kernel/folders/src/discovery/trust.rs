//! Checks that nobody but root and the user who runs the daemon may write shipped extensions. They run inside the kernel
//! without a question, so their place alone is no reason to trust them: whoever may write there could run code as that user.

use std::{
    cell::OnceCell,
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use rustix::{fs::lgetxattr, io::Errno, process::geteuid};

use super::{Found, Kind, Layout, Origin};
use crate::content::{DEPTH, ENTRIES};

/// What lets others write, in the mode of a file or folder.
const GROUP: u32 = 0o020;
const EVERYBODY: u32 = 0o002;

impl Layout {
    /// Why something that was found among what ships does not count as shipped: others may write the folder that holds it,
    /// something in it, or its library.
    ///
    /// The folders further above are not checked. Somebody who may write one of those can put another folder in this place,
    /// but that folder then belongs to them, which this check finds.
    #[must_use]
    pub fn doubt(&self, found: &Found, library: Option<&Path>) -> Option<String> {
        Judge::of_this_process().doubt(found, library)
    }
}

/// Who judges: the user on whose behalf code would run.
struct Judge {
    user: u32,
    accounts: OnceCell<Accounts>,
}

/// Users and groups of this machine, as its files list them.
#[derive(Default)]
struct Accounts {
    users: String,
    groups: String,
}

impl Judge {
    fn of_this_process() -> Self {
        Self { user: geteuid().as_raw(), accounts: OnceCell::new() }
    }

    fn doubt(&self, found: &Found, library: Option<&Path>) -> Option<String> {
        if found.origin != Origin::Shipped {
            return None;
        }
        let looked = || {
            let root = found.folder.parent().unwrap_or(&found.folder);
            self.one(root)?;
            match found.kind {
                Kind::Folder => self.all(&found.folder, root, 0, &mut ENTRIES.clone())?,
                Kind::File => self.within(&found.folder, root)?,
            }
            if let Some(library) = library {
                library.parent().map(|folder| self.one(folder)).transpose()?;
                self.one(library)?;
            }
            Ok(())
        };
        looked().err()
    }

    /// A folder with everything in it, but for what Cargo builds there, which is not read.
    fn all(&self, folder: &Path, root: &Path, depth: usize, room: &mut usize) -> Result<(), String> {
        self.within(folder, root)?;
        if depth > DEPTH {
            return Err(format!("`{}` is nested deeper than {DEPTH} folders", folder.display()));
        }
        for entry in fs::read_dir(folder).map_err(|error| unknown(folder, &error))? {
            let entry = entry.map_err(|error| unknown(folder, &error))?;
            if depth == 0 && entry.file_name() == "target" {
                continue;
            }
            *room = room
                .checked_sub(1)
                .ok_or_else(|| format!("`{}` has more than {ENTRIES} files and folders", root.display()))?;
            let path = entry.path();
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => self.all(&path, root, depth + 1, room)?,
                false => self.within(&path, root)?,
            }
        }
        Ok(())
    }

    /// Something that may be a link, which must lead to something that is looked at as well.
    fn within(&self, path: &Path, root: &Path) -> Result<(), String> {
        if !self.one(path)?.is_symlink() {
            return Ok(());
        }
        match (path.canonicalize(), root.canonicalize()) {
            (Ok(real), Ok(root)) if real.starts_with(&root) => self.one(&real).map(drop),
            _ => Err(format!("`{}` is a link that leads elsewhere", path.display())),
        }
    }

    fn one(&self, path: &Path) -> Result<Metadata, String> {
        let meta = fs::symlink_metadata(path).map_err(|error| unknown(path, &error))?;
        match self.writers(path, &meta) {
            None => Ok(meta),
            Some(why) => Err(why),
        }
    }

    /// Who else may write it.
    fn writers(&self, path: &Path, meta: &Metadata) -> Option<String> {
        let shown = path.display();
        let (owner, group) = (meta.uid(), meta.gid());
        if owner != 0 && owner != self.user {
            return Some(format!(
                "`{shown}` belongs to user {owner}, and the daemon runs as user {}",
                self.user
            ));
        }
        // The mode of a link says nothing.
        if meta.is_symlink() {
            return None;
        }
        if meta.mode() & EVERYBODY != 0 {
            return Some(format!("everybody may write `{shown}`"));
        }
        if meta.mode() & GROUP == 0 {
            return None;
        }
        // Where there is an access list, these bits are the most that it gives to whomever it names.
        if has_access_list(path) {
            return Some(format!("the access list of `{shown}` lets others write it"));
        }
        // With a group of their own, people work under a umask that lets it write, as Fedora and Ubuntu set it; a checkout of
        // theirs is still theirs alone. OpenSSH judges keys so in Debian (its patch `user-group-modes`), and git asks for the
        // owner alone (`safe.directory`); both looked up on 2026-11-23.
        let accounts = self.accounts.get_or_init(Accounts::read);
        (!accounts.alone(owner, group)).then(|| format!("group {group} may write `{shown}`"))
    }
}

fn unknown(path: &Path, error: &io::Error) -> String {
    format!("who may write `{}` is not known: {error}", path.display())
}

/// Whether it has an access list. One that cannot be asked for might.
fn has_access_list(path: &Path) -> bool {
    let list = lgetxattr(path, "system.posix_acl_access", &mut [0_u8; 0][..]);
    !matches!(list, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

impl Accounts {
    fn read() -> Self {
        // Without them nobody is known to be alone in a group.
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self { users: read("/etc/passwd"), groups: read("/etc/group") }
    }

    /// Whether a user has a group for himself: it bears his name, is his first one and nobody else's, and has no other
    /// members.
    fn alone(&self, user: u32, group: u32) -> bool {
        // Such a line takes in others from the network.
        if self.users.lines().chain(self.groups.lines()).any(|line| line.starts_with('+')) {
            return false;
        }
        // `name:password:user:group:…` and `name:password:group:members`
        let users = self.users.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, id, first) = (fields.next()?, fields.nth(1)?, fields.next()?);
            (first.parse() == Ok(group)).then_some((name, id))
        });
        let groups = self.groups.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, id, members) = (fields.next()?, fields.nth(1)?, fields.next()?);
            (id.parse() == Ok(group)).then_some((name, members))
        });
        let (users, groups): (Vec<_>, Vec<_>) = (users.collect(), groups.collect());
        let ([(name, id)], [(named, members)]) = (users.as_slice(), groups.as_slice()) else { return false };
        let mut members = members.split(',').filter(|member| !member.is_empty());
        id.parse() == Ok(user) && name == named && members.all(|member| member == *name)
    }
}

#[cfg(test)]
mod tests;
