//! The sentences in which people read of a crash.

use super::super::judge::Culprit;

/// The longest reason, in bytes.
pub const LONGEST: usize = 256;
/// The longest part of one that a kernel has worded.
const PART: usize = 120;
/// Extensions that a sentence names.
const NAMES: usize = 8;

/// Why an extension is quarantined. `kernels` tells of each counted crash whether it ended the kernel.
pub fn crashed(culprit: &Culprit, how: &str, kernels: &[bool]) -> String {
    let what = if kernels.iter().all(|kernel| *kernel) {
        "crashed the kernel"
    } else if kernels.iter().any(|kernel| *kernel) {
        "crashed"
    } else {
        "crashed in a process of its own"
    };
    let (operation, how) = (plain(&culprit.operation, PART), plain(how, PART));
    let text = if culprit.loading {
        format!("{what} while it was loaded, in `{operation}` with {how}")
    } else {
        format!("{what} {} times in 10 minutes, at last in `{operation}` with {how}", kernels.len())
    };
    plain(&text, LONGEST)
}

/// That a suspicion is settled.
pub fn convicted(extension: &str, cleared: &[String]) -> String {
    if cleared.is_empty() {
        return format!("`{extension}` crashed in a process of its own, where it stays");
    }
    let are = if cleared.len() == 1 { "is" } else { "are" };
    format!("it was `{extension}`, which stays in a process of its own; {} {are} cleared", list(cleared))
}

/// That nothing is held against an extension any more.
pub fn released(extension: &str, why: &str) -> String {
    format!("`{extension}` counts as new: {}", plain(why, PART))
}

pub fn list(names: &[String]) -> String {
    let named: Vec<String> = names.iter().take(NAMES).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(NAMES) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Cut, and without what would disturb a terminal or a line of a log.
pub fn plain(text: &str, most: usize) -> String {
    let text: String = text.chars().map(|char| if drupe_config::acts(char) { ' ' } else { char }).collect();
    text[..text.floor_char_boundary(most)].to_owned()
}
