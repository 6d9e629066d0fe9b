//! Items on their way to a reader, up to its credit.

use std::sync::Arc;

use drupe_extension_api::Fault;
use drupe_handles::{Credit, Given, Item};
use serde::Serialize;
use serde_json::value::to_raw_value;

/// The items of one answer.
pub(crate) struct Items {
    items: Vec<Item>,
    left: Option<Credit>,
}

impl Items {
    pub fn within(credit: Credit) -> Self {
        Self { items: Vec::new(), left: Some(credit) }
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether the reader takes another one.
    pub fn have_room(&self) -> bool {
        self.left.is_some()
    }

    /// Writes an item as text, once.
    pub fn add(&mut self, item: &impl Serialize) -> Result<(), Fault> {
        self.push(Arc::from(to_raw_value(item)?));
        Ok(())
    }

    pub fn push(&mut self, item: Item) {
        self.left = self.left.and_then(|left| left.after(item.get().len()));
        self.items.push(item);
    }

    pub fn given(self) -> Given {
        Given::Items(self.items)
    }
}
