//! Scripts that were named by path, each with the place that it has reached.
//!
//! Anybody who may ask can name a path, so their number is bounded.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

use crate::retry::Link;

/// More than tests and a developer's day use at once. A script that fell out begins anew when it is next named.
const MOST: usize = 16;

/// The scripts used last, the oldest first.
#[derive(Default)]
pub(super) struct ScriptCache(VecDeque<(PathBuf, Link)>);

impl ScriptCache {
    /// The script of a path, if it is still here. Being asked for keeps it.
    pub(super) fn get(&mut self, path: &Path) -> Option<Link> {
        let at = self.0.iter().position(|(kept, _)| kept == path)?;
        let entry = self.0.remove(at)?;
        let link = entry.1.clone();
        self.0.push_back(entry);
        Some(link)
    }

    /// Keeps one more, and lets go of the oldest where there are too many.
    pub(super) fn keep(&mut self, path: PathBuf, link: Link) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((path, link));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::{OfflineSource, free_gate, offline_profile};

    #[test]
    fn the_script_that_was_used_longest_ago_gives_way() {
        let link = Link {
            source: std::sync::Arc::new(OfflineSource::new(offline_profile("scripted/x"))),
            gate: free_gate("scripted"),
        };
        let path = |n: usize| PathBuf::from(n.to_string());
        let mut kept = ScriptCache::default();
        for n in 0..MOST {
            kept.keep(path(n), link.clone());
        }
        assert!(kept.get(&path(0)).is_some());
        kept.keep(path(MOST), link.clone());
        let left: Vec<_> = (0..=MOST).filter(|&n| kept.get(&path(n)).is_some()).collect();
        assert_eq!(left, (0..=MOST).filter(|&n| n != 1).collect::<Vec<_>>());
    }
}
