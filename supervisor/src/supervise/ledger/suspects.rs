//! Extensions of which one ended a kernel.
//!
//! A suspicion is about one crash. When one of the suspects crashes again and is convicted, the crash is explained and the
//! others are cleared. The convicted one goes on in a process of its own, so that it does not end the kernel again.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::keep_newest;

/// Crashes that are not explained, oldest first out.
const SUSPICIONS: usize = 4;
/// Extensions suspected of one crash: a thread each, and more threads than this seldom run at once.
const MEMBERS: usize = 64;
/// Convicted extensions, oldest first out.
const CONVICTED: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Suspects {
    suspicions: VecDeque<Vec<String>>,
    convicted: VecDeque<String>,
}

impl Suspects {
    /// Adds a suspicion: one of these caused a crash. Gives whether it is a new one.
    pub fn suspect(&mut self, mut names: Vec<String>) -> bool {
        names.sort();
        names.dedup();
        names.truncate(MEMBERS);
        if names.is_empty() || self.suspicions.contains(&names) {
            return false;
        }
        self.suspicions.push_back(names);
        self.bound();
        true
    }

    /// This one crashed for certain. If it was a suspect, gives those who are cleared.
    pub fn convict(&mut self, name: &str) -> Option<Vec<String>> {
        let (explained, open): (VecDeque<_>, VecDeque<_>) =
            self.suspicions.drain(..).partition(|members| members.iter().any(|member| member == name));
        self.suspicions = open;
        if explained.is_empty() {
            return None;
        }
        self.convicted.retain(|convicted| convicted != name);
        self.convicted.push_back(name.to_owned());
        self.bound();
        let before: BTreeSet<String> = explained.into_iter().flatten().collect();
        let now = self.names();
        Some(before.into_iter().filter(|member| !now.contains(member)).collect())
    }

    /// Forgets one. Whether it was known.
    pub fn clear(&mut self, name: &str) -> bool {
        let before = self.size();
        self.retain(|member| member != name);
        self.size() != before
    }

    /// All that are to run in processes of their own, sorted.
    pub fn names(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self.suspicions.iter().flatten().chain(&self.convicted).collect();
        all.into_iter().cloned().collect()
    }

    /// Keeps the names that are wanted.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.suspicions.iter_mut().for_each(|members| members.retain(|member| wanted(member)));
        self.suspicions.retain(|members| !members.is_empty());
        self.convicted.retain(|convicted| wanted(convicted));
    }

    pub fn bound(&mut self) {
        keep_newest(&mut self.suspicions, SUSPICIONS);
        self.suspicions.iter_mut().for_each(|members| members.truncate(MEMBERS));
        keep_newest(&mut self.convicted, CONVICTED);
    }

    fn size(&self) -> usize {
        self.suspicions.iter().map(Vec::len).sum::<usize>() + self.convicted.len()
    }
}
