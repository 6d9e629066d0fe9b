//! Which tool a sentence is about.
//!
//! Sentence, names and descriptions are split into words, lower-cased, freed of words that say nothing and of
//! endings. Each word of the sentence that a tool has, counted once, adds `1 / (1 + ln n)` to the tool's score,
//! where `n` is the number of tools that have the word: what few tools have says more. A word of the tool's name
//! adds twice that. The highest score wins, the name that comes first among equals; below [`THRESHOLD`] there is no
//! match.

use std::{collections::BTreeSet, sync::Arc};

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

/// The tool that fits best, if one fits well enough.
pub(super) fn best<'a>(sentence: &str, tools: &'a [Arc<ToolSpec>]) -> Option<&'a ToolSpec> {
    let asked = words(sentence);
    let entries: Vec<Entry<'_>> = tools.iter().map(|tool| Entry::new(tool)).collect();
    let weight = |word: &str| {
        let n = entries.iter().filter(|e| e.has(word)).count();
        1.0 / (1.0 + (n.max(1) as f64).ln())
    };
    let score = |entry: &Entry<'_>| -> f64 {
        let counts = |word: &&String| {
            if entry.name.contains(*word) {
                2.0
            } else if entry.has(word) {
                1.0
            } else {
                0.0
            }
        };
        asked.iter().map(|word| counts(&word) * weight(word)).sum()
    };
    let mut best: Option<(f64, &ToolSpec)> = None;
    for entry in &entries {
        let score = score(entry);
        let better =
            best.is_none_or(|(top, tool)| score > top || (score == top && entry.tool.name < tool.name));
        if score >= THRESHOLD && better {
            best = Some((score, entry.tool));
        }
    }
    best.map(|(_, tool)| tool)
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
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .map(str::to_lowercase)
        .filter(|word| !word.is_empty() && EMPTY_WORDS.binary_search(&word.as_str()).is_err())
        .map(|word| stem(&word))
        .collect()
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
    let rest = rest.or_else(|| cut("s").filter(|rest| !rest.ends_with(['s', 'u', 'i']))).unwrap_or(word);
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
