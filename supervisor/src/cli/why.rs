//! `drupe why`: why something ended as it did, in sentences, and the rows that they rest on.

use drupe_extension_api::control::{Cited, Explanation, Named, method};
use serde_json::Value;

use super::{
    Context, Facts,
    console::{Style, plain, table},
    failure::Failure,
};

/// Arguments of `drupe why`.
#[derive(Debug, clap::Args)]
pub struct Why {
    /// A turn, session, run, tool call, extension, limit, or message of the bus
    id: String,
    #[command(flatten)]
    facts: Facts,
}

impl Why {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let said: Value = context.daemon().call(method::WHY, &Named { id: self.id })?;
        if self.facts.json {
            return context.console.json(&said).map(|()| 0);
        }
        let explanation: Explanation = serde_json::from_value(said)?;
        context.console.draw(&render(&explanation, context.console.colour))?;
        Ok(0)
    }
}

fn render(explanation: &Explanation, colour: bool) -> String {
    let Explanation { id, subject, sentences, remedy, cited } = explanation;
    let line = |text: &str| plain(text).replace('\n', " ");
    let title = format!("{} {}", line(subject).replace('_', " "), line(id));
    let mut text = format!("{}\n", Style::Bold.paint(&title, colour));
    for sentence in sentences {
        text.push_str(&format!("  {}\n", line(sentence)));
    }
    if let Some(remedy) = remedy {
        text.push_str(&format!("  {} {}\n", Style::Good.paint("help:", colour), line(remedy)));
    }
    if !cited.is_empty() {
        text.push_str(&format!("{}\n", Style::Dim.paint("Because:", colour)));
        let row = |cited: &Cited| {
            let Cited { table, key, says } = cited;
            vec![format!("  {}", line(table)), line(key), line(says)]
        };
        for line in table(&cited.iter().map(row).collect::<Vec<_>>()).lines() {
            text.push_str(&format!("{}\n", Style::Dim.paint(line, colour)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(explanation: Value, expected: &str) {
        let explanation = serde_json::from_value(explanation).expect("an explanation");
        assert_eq!(render(&explanation, false), expected);
    }

    #[test]
    fn sentences_come_first_then_the_remedy_then_the_rows() {
        let explanation = json!({
            "id": "e-1", "subject": "tool_call",
            "sentences": ["`files_write` did not run.", "Its parameters\ndid not fit its schema."],
            "remedy": "correct the call", "cited": [
                {"table": "events", "key": "main/17", "says": "interaction.item.completed: refused"},
                {"table": "entries", "key": "204", "says": "a\u{1b}[2J result"},
            ],
        });
        let expected = "\
tool call e-1
  `files_write` did not run.
  Its parameters did not fit its schema.
  help: correct the call
Because:
  events   main/17  interaction.item.completed: refused
  entries  204      a[2J result
";
        check(explanation, expected);
    }

    #[test]
    fn what_needs_no_remedy_has_none() {
        let explanation =
            json!({"id": "t", "subject": "turn", "sentences": ["It was answered."], "cited": []});
        check(explanation, "turn t\n  It was answered.\n");
    }
}
