//! Which tool a sentence is about.
//!
//! Sentence, names and descriptions are split into words, lower-cased, freed of words that say nothing and of
//! endings. Each word of the sentence that a tool has, counted once, adds `1 / (1 + ln n)` to the tool's score,
//! where `n` is the number of tools that have the word: what few tools have says more. A word of the tool's name
//! adds twice that. Below [`THRESHOLD`] a tool does not match.
//!
//! Of the tools that match, the one wins that scores highest where each word behind the first of [`DESCRIBING`]
//! counts as [`DESCRIPTION`] only: in `create an agent called haiku that writes haikus` the first words say what is
//! to be done, and the rest what its outcome is like. Among equals the name that comes first wins.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use drupe_extension_api::ToolSpec;

/// One word of a name that no other tool has (2), or two such words of a description, are enough; one word of a
/// description is a coincidence.
const THRESHOLD: f64 = 1.5;

const EMPTY_WORDS: [&str; 75] = [
    "a", "about", "all", "am", "an", "and", "any", "are", "as", "at", "be", "but", "by", "can", "could",
    "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "his", "how", "i", "if", "in",
    "into", "is", "it", "its", "let", "like", "me", "my", "no", "not", "of", "on", "or", "our", "please",
    "she", "so", "some", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this",
    "those", "to", "us", "was", "we", "what", "when", "where", "which", "who", "why", "will", "with",
    "would", "yes", "you", "your",
];

/// Words with which a sentence turns from what is to be done to what something is like.
const DESCRIBING: [&str; 5] = ["called", "named", "that", "which", "who"];
/// Low enough that a tool's whole name there does not outweigh the thing and the verb before it, and not nothing, so
/// that it settles between tools that fit those alike.
const DESCRIPTION: f64 = 0.25;

/// The tool that fits best, if one fits well enough.
pub(super) fn best<'a>(sentence: &str, tools: &'a [Arc<ToolSpec>]) -> Option<&'a ToolSpec> {
    let asked = asked(sentence);
    let entries: Vec<Entry<'_>> = tools.iter().map(|tool| Entry::new(tool)).collect();
    let weight = |word: &str| {
        let n = entries.iter().filter(|e| e.has(word)).count();
        1.0 / (1.0 + (n.max(1) as f64).ln())
    };
    let mut best: Option<(f64, &ToolSpec)> = None;
    for entry in &entries {
        let (mut whole, mut rank) = (0.0, 0.0);
        for (word, share) in &asked {
            let score = entry.counts(word) * weight(word);
            whole += score;
            rank += score * share;
        }
        let better =
            best.is_none_or(|(top, tool)| rank > top || (rank == top && entry.tool.name < tool.name));
        if whole >= THRESHOLD && better {
            best = Some((rank, entry.tool));
        }
    }
    best.map(|(_, tool)| tool)
}

/// The words of a sentence, and how much each counts in choosing.
fn asked(sentence: &str) -> BTreeMap<String, f64> {
    let mut asked = BTreeMap::new();
    let mut share = 1.0;
    for word in split(sentence) {
        if DESCRIBING.contains(&word.as_str()) {
            share = DESCRIPTION;
        } else if says_something(&word) {
            // The first time that a word is said is the one that counts most.
            asked.entry(stem(&word)).or_insert(share);
        }
    }
    asked
}

struct Entry<'a> {
    tool: &'a ToolSpec,
    name: BTreeSet<String>,
    description: BTreeSet<String>,
}

impl<'a> Entry<'a> {
    fn new(tool: &'a ToolSpec) -> Self {
        Self { tool, name: words(tool.name.as_str()), description: words(&tool.description) }
    }

    fn has(&self, word: &str) -> bool {
        self.name.contains(word) || self.description.contains(word)
    }

    fn counts(&self, word: &str) -> f64 {
        match (self.name.contains(word), self.description.contains(word)) {
            (true, _) => 2.0,
            (false, true) => 1.0,
            (false, false) => 0.0,
        }
    }
}

fn words(text: &str) -> BTreeSet<String> {
    split(text).filter(|word| says_something(word)).map(|word| stem(&word)).collect()
}

fn split(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

fn says_something(word: &str) -> bool {
    EMPTY_WORDS.binary_search(&word).is_err()
}

/// Takes endings off, so that `create`, `creates`, `created` and `creating` are one word. What remains need not be
/// a word; it only has to be the same on both sides.
fn stem(word: &str) -> String {
    let long = |rest: &str| rest.chars().count() >= 3;
    let cut = |ending: &str| word.strip_suffix(ending).filter(|rest| long(rest));
    if let Some(rest) = cut("ies") {
        return format!("{rest}y");
    }
    let rest = cut("ing").or_else(|| cut("ed")).or_else(|| cut("er"));
    let rest = rest.or_else(|| cut("s").filter(|rest| !rest.ends_with('s'))).unwrap_or(word);
    let rest = rest.strip_suffix('e').filter(|rest| long(rest)).unwrap_or(rest);
    // `running` leaves `runn`.
    let mut ends = rest.chars().rev();
    match (ends.next(), ends.next()) {
        (Some(a), Some(b)) if a == b && rest != word && !matches!(a, 's' | 'l' | 'e') => {
            rest[..rest.len() - a.len_utf8()].to_owned()
        }
        _ => rest.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_word_are_the_same() {
        for forms in [
            ["create", "creates", "created", "creating"],
            ["run", "runs", "running", "runner"],
            ["agent", "agents", "agents", "agent"],
            ["write", "writes", "writing", "writer"],
            ["memory", "memories", "memories", "memory"],
            ["list", "lists", "listed", "listing"],
            ["haiku", "haikus", "haikus", "haiku"],
            ["class", "classes", "classed", "class"],
        ] {
            for form in forms {
                assert_eq!(stem(form), stem(forms[0]), "{form}");
            }
        }
        assert_ne!(stem("status"), stem("state"));
    }

    #[test]
    fn the_empty_words_are_in_order() {
        assert!(EMPTY_WORDS.is_sorted());
    }
}
