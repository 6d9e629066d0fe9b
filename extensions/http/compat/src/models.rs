//! `GET /v1/models` and `GET /v1/models/{id}` in either vendor's shape.
//!
//! Facts: `openai` 3.54.0 (`types/model.py`), `anthropic` 2.12.0 (`types/model_info.py`, `pagination.py`), read on
//! 2026-11-24. Anthropic pages its list: `limit` is 1 to 1000 and 20 by default, `after_id` and `before_id` name the neighbour of
//! the page, and `lifecycle` says which stages are wanted. Its clients read on as long as `has_more` is true.

use serde_json::{Value, json};

use crate::{Rejection, Vendor};

/// An agent, or the orchestrator, as a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedModel {
    pub id: String,
    pub name: String,
}

/// Agents have no date of release: Anthropic says the beginning of time where a date is unknown.
const UNKNOWN: &str = "1970-01-01T00:00:00Z";

impl ServedModel {
    pub fn body(&self, vendor: Vendor) -> Value {
        match vendor {
            Vendor::OpenAi => json!({"id": self.id, "object": "model", "created": 0, "owned_by": "drupe"}),
            Vendor::Anthropic => json!({"type": "model", "id": self.id, "display_name": self.name,
                "created_at": UNKNOWN, "lifecycle": "active"}),
        }
    }
}

/// Which part of the list Anthropic's client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPage {
    limit: usize,
    after: Option<String>,
    before: Option<String>,
    /// Whether models that are there are wanted at all.
    active: bool,
}

impl Default for ModelPage {
    fn default() -> Self {
        Self { limit: 20, after: None, before: None, active: true }
    }
}

impl ModelPage {
    /// From the pairs of the query, decoded.
    pub fn parse<'a>(query: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Rejection> {
        let mut page = Self::default();
        let mut stages = Vec::new();
        for (key, value) in query {
            match key {
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=1000).contains(limit));
                    page.limit = limit.ok_or_else(|| {
                        Rejection::invalid(
                            Some("limit".into()),
                            "`limit` must be a whole number from 1 to 1000",
                        )
                    })?;
                }
                "after_id" => page.after = Some(value.to_owned()),
                "before_id" => page.before = Some(value.to_owned()),
                "lifecycle" | "lifecycle[]" => stages.extend(value.split(',')),
                _ => {}
            }
        }
        page.active = stages.is_empty() || stages.contains(&"active");
        if page.after.is_some() && page.before.is_some() {
            let message = "a page lies after a model or before one: leave `after_id` or `before_id` out";
            return Err(Rejection::invalid(Some("before_id".into()), message));
        }
        Ok(page)
    }

    /// The models of the page, and whether there are more in its direction.
    fn cut<'a>(&self, models: &'a [ServedModel]) -> Result<(&'a [ServedModel], bool), Rejection> {
        let place = |id: &str| {
            models.iter().position(|model| model.id == id).ok_or_else(|| Rejection::no_such_model(id))
        };
        if !self.active {
            return Ok((&[], false));
        }
        if let Some(id) = &self.before {
            let rest = &models[..place(id)?];
            let from = rest.len().saturating_sub(self.limit);
            return Ok((&rest[from..], from > 0));
        }
        let from = self.after.as_deref().map(place).transpose()?.map_or(0, |at| at + 1);
        let rest = &models[from..];
        Ok((&rest[..rest.len().min(self.limit)], rest.len() > self.limit))
    }
}

/// The list that OpenAI's clients get, which is whole.
pub fn openai_list(models: &[ServedModel]) -> Value {
    let data: Vec<Value> = models.iter().map(|model| model.body(Vendor::OpenAi)).collect();
    json!({"object": "list", "data": data})
}

/// The page that Anthropic's clients get.
pub fn anthropic_list(models: &[ServedModel], page: &ModelPage) -> Result<Value, Rejection> {
    let (models, has_more) = page.cut(models)?;
    let data: Vec<Value> = models.iter().map(|model| model.body(Vendor::Anthropic)).collect();
    let id = |model: Option<&ServedModel>| model.map(|model| model.id.clone());
    Ok(
        json!({"data": data, "has_more": has_more, "first_id": id(models.first()), "last_id": id(models.last())}),
    )
}
