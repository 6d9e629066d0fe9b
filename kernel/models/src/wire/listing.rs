//! The provider's own list of models.

use std::time::Duration;

use drupe_agent::ModelFault;
use drupe_extension_api::FailureClass;
use jiff::Timestamp;
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::{WireProvider, fault};

/// Time for the whole of it: a turn waits for it once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Far above what the longest lists of gateways take.
const LONGEST: usize = 16 << 20;

/// A model that a provider says it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// Its name, as requests have it.
    pub name: String,
    /// The day from which on it is not there any more, where the provider says so.
    pub retires: Option<String>,
}

impl WireProvider {
    /// Its models. None where the server has no such list. `name` is what the provider is called.
    pub(crate) async fn list(&self, name: &str) -> Result<Option<Vec<ListedModel>>, ModelFault> {
        let fetched = timeout_at(Instant::now() + PATIENCE, self.fetch()).await;
        let fetched = fetched.unwrap_or_else(|_| {
            let text = format!("its list of models did not come within {} s", PATIENCE.as_secs());
            Err(ModelFault::transient(FailureClass::Timeout, text))
        });
        let mut list = fetched.map_err(|fault| self.named(name, fault))?;
        list.iter_mut().flatten().for_each(|model| model.name = self.shown(&model.name));
        Ok(list)
    }

    async fn fetch(&self) -> Result<Option<Vec<ListedModel>>, ModelFault> {
        let (path, query) = self.api().list();
        let request = self.client()?.get(self.join(path, query));
        let mut response = request.send().await.map_err(|error| fault::of_transport(&error).fault)?;
        let (status, headers) = (response.status(), response.headers().clone());
        if matches!(
            status,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
        ) {
            return Ok(None);
        }
        let body = whole(&mut response).await?;
        if !status.is_success() {
            return Err(fault::of_response(status, &headers, &body, Timestamp::now(), ("", &[])).fault);
        }
        Ok(read(&body))
    }
}

async fn whole(response: &mut Response) -> Result<Vec<u8>, ModelFault> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(|error| fault::of_transport(&error).fault)? {
        body.extend_from_slice(&bytes);
        if body.len() > LONGEST {
            return Err(ModelFault::fatal(FailureClass::Model, "its list of models is longer than any"));
        }
    }
    Ok(body)
}

/// OpenAI's and Anthropic's form, Google's, and bare lists of gateways. None where it is none of these.
fn read(body: &[u8]) -> Option<Vec<ListedModel>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Lists {
        Data { data: Vec<Item> },
        Models { models: Vec<Item> },
        Bare(Vec<Item>),
    }
    #[derive(Deserialize)]
    struct Item {
        id: Option<String>,
        name: Option<String>,
        shutdown_date: Option<String>,
    }
    let items = match serde_json::from_slice(body).ok()? {
        Lists::Data { data: items } | Lists::Models { models: items } | Lists::Bare(items) => items,
    };
    let listed = items.into_iter().filter_map(|item| {
        let name = item.id.or(item.name)?;
        let name = name.strip_prefix("models/").map_or(name.as_str(), |short| short).to_owned();
        Some(ListedModel { name, retires: item.shutdown_date })
    });
    Some(listed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_all_providers_are_read() {
        for (body, names) in [
            (
                r#"{"object":"list","data":[{"id":"a","shutdown_date":"2027-01-14"},{"id":"b"}]}"#,
                &["a", "b"][..],
            ),
            (
                r#"{"data":[{"type":"model","id":"claude-x","display_name":"X"}],"has_more":false}"#,
                &["claude-x"],
            ),
            (r#"{"models":[{"name":"models/gemini-x","displayName":"X"}]}"#, &["gemini-x"]),
            (r#"[{"id":"org/a"}]"#, &["org/a"]),
            (r#"{"data":[]}"#, &[]),
        ] {
            let listed = read(body.as_bytes())
                .map(|list| list.into_iter().map(|model| model.name).collect::<Vec<_>>());
            assert_eq!(
                listed.as_deref(),
                Some(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()[..]),
                "{body}"
            );
        }
        assert_eq!(read(b"<html>"), None);
        let first = read(br#"{"data":[{"id":"a","shutdown_date":"2027-01-14"}]}"#)
            .map(|list| list[0].retires.clone());
        assert_eq!(first, Some(Some("2027-01-14".to_owned())));
    }
}
