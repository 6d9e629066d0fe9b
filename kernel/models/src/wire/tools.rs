//! The JSON of tool lists.
//!
//! The list is the same for each step of a run, so its JSON is made once for each list and then copied in as it is.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use drupe_extension_api::ToolSpec;
use serde_json::value::RawValue;

use super::{Api, Names};

/// Lists kept: one for each agent that is at work, roughly.
const KEPT: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct ToolList {
    /// None for an empty list, which servers refuse.
    pub(crate) json: Option<Box<RawValue>>,
    pub(crate) names: Names,
}

#[derive(Default)]
pub(crate) struct ToolLists(Mutex<VecDeque<Kept>>);

type Kept = (Weak<[Arc<ToolSpec>]>, Arc<ToolList>);

impl ToolLists {
    pub(crate) fn of(
        &self,
        api: &dyn Api,
        tools: &Arc<[Arc<ToolSpec>]>,
    ) -> serde_json::Result<Arc<ToolList>> {
        if tools.is_empty() {
            return Ok(Arc::default());
        }
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A weak reference keeps the address from being given to another list.
        let this = Arc::downgrade(tools);
        if let Some((_, list)) = lists.iter().find(|(kept, _)| kept.ptr_eq(&this)) {
            return Ok(Arc::clone(list));
        }
        let names = Names::of(tools);
        let list = Arc::new(ToolList { json: Some(api.tools(tools, &names)?), names });
        lists.retain(|(kept, _)| kept.strong_count() > 0);
        lists.truncate(KEPT - 1);
        lists.push_front((this, Arc::clone(&list)));
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use drupe_extension_api::{ToolAnnotations, ToolName};
    use serde_json::json;

    use super::*;
    use crate::chat::ChatApi;

    fn list(name: &str) -> Arc<[Arc<ToolSpec>]> {
        let spec = ToolSpec {
            name: ToolName::new(name).unwrap(),
            description: String::new(),
            input_schema: json!({}),
            instructions: None,
            annotations: ToolAnnotations::default(),
        };
        vec![Arc::new(spec)].into()
    }

    #[test]
    fn a_tool_list_is_written_once_and_never_mistaken_for_another() {
        let (lists, api) = (ToolLists::default(), ChatApi::default());
        let one = list("a");
        let first = lists.of(&api, &one).unwrap();
        assert!(Arc::ptr_eq(&first, &lists.of(&api, &Arc::clone(&one)).unwrap()));
        for n in 0..200 {
            let other = lists.of(&api, &list(&format!("t{n}"))).unwrap();
            assert!(other.json.as_ref().unwrap().get().contains(&format!("\"t{n}\"")));
        }
        assert!(lists.0.lock().unwrap().len() <= KEPT);
        assert!(lists.of(&api, &Vec::new().into()).unwrap().json.is_none());
    }
}
