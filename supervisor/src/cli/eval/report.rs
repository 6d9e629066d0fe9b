//! What became of the cases: for people, for programs, and as JUnit's XML, which build servers read.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::console::{Style, duration, plain, short, table};

/// Characters of a fault in the table.
const FAULT: usize = 160;

/// What became of one case with one agent and one model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseOutcome {
    pub case: String,
    /// Who was asked; `orchestrator` where nobody was named.
    pub agent: String,
    /// The model that was asked for; none for the agent's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    pub passed: bool,
    /// What is not as expected.
    pub faults: Vec<String>,
    pub tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    pub elapsed_ms: u64,
    /// By which the turn can be looked at: `drupe trace`, `drupe why`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
}

/// A line for each, with what is amiss below.
pub fn lines(all: &[CaseOutcome], colour: bool) -> String {
    let row = |one: &CaseOutcome| {
        let verdict = if one.passed { "passed" } else { "failed" };
        vec![
            verdict.to_owned(),
            plain(&one.case),
            plain(&one.agent),
            one.model.as_deref().map(plain).unwrap_or_default(),
            format!("{} tokens", one.tokens),
            one.cost_usd.map(|cost| format!("${cost:.4}")).unwrap_or_default(),
            duration(one.elapsed_ms),
        ]
    };
    let mut text = table(&all.iter().map(row).collect::<Vec<_>>());
    for one in all.iter().filter(|one| !one.passed) {
        let model = one.model.as_ref().map(|model| format!(" with {}", plain(model))).unwrap_or_default();
        let turn = one.turn.as_ref().map(|turn| format!(" (turn {turn})")).unwrap_or_default();
        let _ =
            writeln!(text, "\n{}", Style::Bold.paint(&format!("{}{model}{turn}", plain(&one.case)), colour));
        for fault in &one.faults {
            let _ = writeln!(text, "  {}", Style::Bad.paint(&short(fault, FAULT), colour));
        }
    }
    let failed = all.iter().filter(|one| !one.passed).count();
    let _ = write!(text, "\n{} passed, {failed} failed", all.len() - failed);
    text
}

/// The form of JUnit: a suite with a case for each.
pub fn junit(all: &[CaseOutcome]) -> String {
    let failed = all.iter().filter(|one| !one.passed).count();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(xml, "<testsuite name=\"drupe eval\" tests=\"{}\" failures=\"{failed}\">", all.len());
    for one in all {
        let class = match &one.model {
            Some(model) => format!("{} ({model})", one.agent),
            None => one.agent.clone(),
        };
        let seconds = one.elapsed_ms as f64 / 1000.0;
        let _ = write!(
            xml,
            "  <testcase classname=\"{}\" name=\"{}\" time=\"{seconds:.3}\"",
            escaped(&class),
            escaped(&one.case)
        );
        match one.faults.first() {
            None => xml.push_str("/>\n"),
            Some(first) => {
                let all = escaped(&one.faults.join("\n"));
                let _ = writeln!(xml, "><failure message=\"{}\">{all}</failure></testcase>", escaped(first));
            }
        }
    }
    xml.push_str("</testsuite>\n");
    xml
}

/// A text within XML. What XML cannot hold is left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push_str(&format!("&#{};", u32::from(letter))),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {}
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_holds_whatever_an_answer_holds() {
        let failed = CaseOutcome {
            case: "a <b> & \"c\"".into(),
            agent: "haiku".into(),
            model: Some("local/test".into()),
            passed: false,
            faults: vec!["not \u{1b}[31m<right>".into(), "nor\nthis".into()],
            tokens: 7,
            cost_usd: None,
            elapsed_ms: 1_500,
            turn: Some("t-1".into()),
        };
        let passed = CaseOutcome { passed: true, faults: Vec::new(), case: "fine".into(), ..failed.clone() };
        let xml = junit(&[passed.clone(), failed.clone()]);
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <testsuite name=\"drupe eval\" tests=\"2\" failures=\"1\">\n  \
            <testcase classname=\"haiku (local/test)\" name=\"fine\" time=\"1.500\"/>\n  \
            <testcase classname=\"haiku (local/test)\" name=\"a &lt;b&gt; &amp; &quot;c&quot;\" time=\"1.500\">\
            <failure message=\"not [31m&lt;right&gt;\">not [31m&lt;right&gt;&#10;nor&#10;this</failure></testcase>\n\
            </testsuite>\n";
        assert_eq!(xml, expected);
        let shown = lines(&[passed, failed], false);
        assert!(shown.ends_with("1 passed, 1 failed") && !shown.contains('\u{1b}'), "{shown}");
    }
}
