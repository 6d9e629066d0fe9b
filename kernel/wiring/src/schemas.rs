//! Compiled schemas by their text. Everything is wired again whenever one extension changes, and compiling is what that
//! costs most.

use std::{collections::HashMap, sync::Arc};

use drupe_agent::{Schema, SchemaFault};
use parking_lot::Mutex;
use serde_json::Value;

/// The most that are kept. A compiled schema takes many times the memory of its text.
const KEPT: usize = 512;

/// The schemas that were compiled.
#[derive(Default)]
pub struct Schemas(Mutex<HashMap<String, Arc<Schema>>>);

impl Schemas {
    /// What a schema compiles to, or what is wrong with it.
    pub(crate) fn compiled(&self, schema: &Value) -> Result<Arc<Schema>, SchemaFault> {
        let text = schema.to_string();
        if let Some(known) = self.0.lock().get(&text) {
            return Ok(Arc::clone(known));
        }
        let compiled = Arc::new(Schema::new(schema)?);
        let mut kept = self.0.lock();
        if kept.len() >= KEPT {
            // Those that nobody has any more. Where all are in use, this one is not kept.
            kept.retain(|_, one| Arc::strong_count(one) > 1);
        }
        if kept.len() < KEPT {
            kept.insert(text, Arc::clone(&compiled));
        }
        Ok(compiled)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_compiled_once_for_all_that_say_the_same_and_as_many_are_kept_as_are_bounded() {
        let schemas = Schemas::default();
        let of = |n: usize| schemas.compiled(&json!({"maxLength": n})).expect("a schema");
        let used = of(0);
        assert!(Arc::ptr_eq(&used, &of(0)));
        let first = Arc::downgrade(&of(1));
        for n in 1..2 * KEPT {
            of(n);
        }
        assert!(Arc::ptr_eq(&used, &of(0)), "what is in use stays");
        assert!(first.upgrade().is_none(), "what is not goes");
        let all: Vec<_> = (1..KEPT + 8).map(of).collect();
        assert_eq!(schemas.0.lock().len(), KEPT, "{}", all.len());
        assert!(schemas.compiled(&json!({"type": 1})).is_err());
    }
}
