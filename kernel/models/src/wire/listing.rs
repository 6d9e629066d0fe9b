//! The provider's own list of models.

use std::time::Duration;

use drupe_agent::ModelFault;
use drupe_extension_api::{FailureClass, is_model_name};
use jiff::Timestamp;
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::{WireProvider, fault};

/// Time for the whole of it: a turn waits for it once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Far above what the longest lists of gateways take.
const LONGEST: usize = 16 << 20;
/// Models of a list that are read: gateways have some hundreds. Each name is searched for keys, which takes time.
const MOST_LISTED: usize = 4_000;

/// A model that a provider says it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
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
        let body = whole(&mut response, LONGEST, "its list of models").await?;
        if !status.is_success() {
            return Err(fault::of_response(status, &headers, &body, Timestamp::now(), ("", &[])).fault);
        }
        read(&body).map(Some)
    }
}

/// The body of an answer that has at most so many bytes; `what` it is.
pub(super) async fn whole(
    response: &mut Response,
    longest: usize,
    what: &str,
) -> Result<Vec<u8>, ModelFault> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(|error| fault::of_transport(&error).fault)? {
        body.extend_from_slice(&bytes);
        if body.len() > longest {
            return Err(ModelFault::fatal(FailureClass::Model, format!("{what} is longer than any")));
        }
    }
    Ok(body)
}

/// OpenAI's and Anthropic's form, Google's, and bare lists of gateways. Some servers write `null` for a list of nothing.
fn read(body: &[u8]) -> Result<Vec<ListedModel>, ModelFault> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Lists {
        Data {
            // Required, and may be `null`.
            #[serde(deserialize_with = "Option::deserialize")]
            data: Option<Vec<Item>>,
        },
        Models {
            #[serde(deserialize_with = "Option::deserialize")]
            models: Option<Vec<Item>>,
        },
        Bare(Vec<Item>),
    }
    #[derive(Deserialize)]
    struct Item {
        id: Option<String>,
        name: Option<String>,
        shutdown_date: Option<String>,
    }
    if let Some(broken) = fault::in_place_of_answer(body) {
        return Err(broken.fault);
    }
    let items = match serde_json::from_slice(body) {
        Ok(Lists::Data { data: items } | Lists::Models { models: items }) => items.unwrap_or_default(),
        Ok(Lists::Bare(items)) => items,
        Err(_) => return Err(no_list(body)),
    };
    let listed = items.into_iter().filter_map(|item| {
        let name = item.id.or(item.name)?;
        let name = name.strip_prefix("models/").map_or(name.as_str(), |short| short).to_owned();
        if !is_model_name(&name) {
            return None;
        }
        Some(ListedModel { name, retires: item.shutdown_date })
    });
    Ok(listed.take(MOST_LISTED).collect())
}

/// A success whose body is no list of models.
fn no_list(body: &[u8]) -> ModelFault {
    let said = match fault::words(body) {
        said if said.is_empty() => "nothing".to_owned(),
        said => said,
    };
    let text = format!("what came for its list of models is none (look at base_url and kind): {said}");
    ModelFault::fatal(FailureClass::Config, text)
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
            (r#"{"object":"list","data":null}"#, &[]),
            (r#"{"error":null,"data":[{"id":"a"}]}"#, &["a"]),
            (r#"{"data":[{"id":"no name"},{"id":""},{"id":"a"}]}"#, &["a"]),
        ] {
            let listed = read(body.as_bytes()).expect(body);
            assert_eq!(listed.into_iter().map(|model| model.name).collect::<Vec<_>>(), names, "{body}");
        }
        let first = read(br#"{"data":[{"id":"a","shutdown_date":"2027-01-14"}]}"#).expect("a list").remove(0);
        assert_eq!(first.retires.as_deref(), Some("2027-01-14"));
    }

    #[test]
    fn what_is_no_list_says_what_it_is() {
        for (body, class, said) in [
            ("<!doctype html><title>Sign in</title>", FailureClass::Config, "a page in HTML, \"Sign in\""),
            ("", FailureClass::Config, "nothing"),
            ("it works", FailureClass::Config, "it works"),
            (r#"{"message":"try later"}"#, FailureClass::Config, "try later"),
            ("{}", FailureClass::Config, "{}"),
            ("[1]", FailureClass::Config, ": 1"),
            (r#"{"data":"none"}"#, FailureClass::Config, "none"),
            (
                r#"{"error":{"message":"no such key","type":"authentication_error"}}"#,
                FailureClass::Auth,
                "no such key",
            ),
            (r#"[{"error":{"message":"over","code":503}}]"#, FailureClass::Network, "over"),
        ] {
            let fault = read(body.as_bytes()).expect_err(body);
            assert_eq!(fault.class, class, "{body}: {fault}");
            assert!(fault.message.contains(said), "{body}: {fault}");
        }
    }
}
