//! TurnTexts of a turn, where the configuration asks for them. Secrets were taken out of them when they were recorded.

use std::collections::HashMap;

use drupe_extension_api::{
    control::{CallKind, ItemArgument, ItemText, TraceNode, TurnResult, TurnTrace, method},
    prelude::*,
};
use serde_json::json;

/// Bytes of one text. What is longer is cut: a trace is to be looked at, and the whole is in the journal.
const LONGEST: usize = 16 << 10;
/// TurnTexts that are asked for; a turn of a thousand calls has the first of them.
const MOST: usize = 500;

#[derive(Default)]
pub struct TurnTexts {
    /// What the turn was asked, and what it answered.
    pub turn: Option<(String, String)>,
    /// By the ids of nodes.
    items: HashMap<String, ItemText>,
}

impl TurnTexts {
    /// What the daemon gives of them; what it does not give is left out.
    pub async fn of(host: &Host, trace: &TurnTrace) -> Self {
        let ask = json!({"turn": trace.turn, "brief": true, "now": true});
        let turn = host.control::<TurnResult>(method::TURN_WAIT, &ask).await.ok();
        let turn = turn.map(|result| (cut(result.input, LONGEST), cut(result.content, LONGEST)));
        let mut items = HashMap::new();
        for id in ids(&trace.nodes).take(MOST) {
            let ask = ItemArgument { session: trace.session.clone(), id: id.clone() };
            if let Ok(text) = host.control::<ItemText>(method::ITEMS_SHOW, &ask).await {
                let cut = |text: Option<String>| text.map(|text| cut(text, LONGEST));
                items.insert(id, ItemText { input: cut(text.input), output: cut(text.output), ..text });
            }
        }
        Self { turn, items }
    }

    pub fn item(&self, id: &str) -> Option<&ItemText> {
        self.items.get(id)
    }

    /// Whether texts are asked for.
    pub fn are_wanted(&self) -> bool {
        self.turn.is_some()
    }
}

/// The ids of all that has texts of its own.
fn ids(nodes: &[TraceNode]) -> Box<dyn Iterator<Item = String> + Send + '_> {
    Box::new(nodes.iter().flat_map(|node| {
        let has = matches!(node.kind, CallKind::Model | CallKind::Tool);
        has.then(|| node.id.clone()).into_iter().chain(ids(&node.nodes))
    }))
}

/// A text of at most so many bytes.
pub fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}
