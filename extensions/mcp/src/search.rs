//! Finds tools among many by words. Pure.

use crate::definition::ToolText;

/// Tools that one search gives.
const GIVEN: usize = 8;

/// A tool that can be found.
pub struct Findable<'a> {
    pub name: &'a str,
    pub definition: &'a ToolText,
}

/// The tools that fit the words best, the best first. A word in a name counts more than one in a description.
pub fn find<'a>(entries: &'a [Findable<'a>], query: &str) -> Vec<&'a Findable<'a>> {
    let words: Vec<String> = query
        .to_lowercase()
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(str::to_owned)
        .collect();
    let score = |entry: &Findable<'_>| -> usize {
        let (name, text) = (entry.name.to_lowercase(), entry.definition.description.to_lowercase());
        let of = |word: &String| {
            3 * usize::from(name.contains(word.as_str())) + usize::from(text.contains(word.as_str()))
        };
        words.iter().map(of).sum()
    };
    let mut scored: Vec<(usize, &Findable<'_>)> = entries.iter().map(|entry| (score(entry), entry)).collect();
    scored.retain(|(score, _)| *score > 0);
    // Those of the same score stay in the order of their names.
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    scored.into_iter().take(GIVEN).map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_fits_best_comes_first_and_what_does_not_fit_not_at_all() {
        let of = |text: &str| ToolText { description: text.into(), schema: json!({}) };
        let (log, status, fetch) =
            (of("Shows commits."), of("Shows the log of changes."), of("Gets a page."));
        let entries = [
            Findable { name: "git__status", definition: &status },
            Findable { name: "git__log", definition: &log },
            Findable { name: "web__fetch", definition: &fetch },
        ];
        let found = |query: &str| find(&entries, query).iter().map(|entry| entry.name).collect::<Vec<_>>();
        assert_eq!(found("the log"), ["git__log", "git__status"], "a name counts more");
        assert_eq!(found("git-LOG"), ["git__log", "git__status"]);
        assert_eq!(found("pages of the weather"), ["git__status"]);
        assert!(found("  ").is_empty());
    }
}
