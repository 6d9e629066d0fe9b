//! Brave's web search API (api-dashboard.search.brave.com/api-reference/web/search/get, seen 2026-11-24).

use drupe_extension_api::Fault;
use http_body_util::Full;
use hyper::{
    Request, StatusCode,
    body::Bytes,
    header::{ACCEPT, HeaderValue},
};
use serde_json::Value;
use url::Url;

use super::{Found, SearchApi, SearchQuery, below, text};
use crate::fetch::path;

/// Words of a query at most, beside its 400 characters.
const WORDS: usize = 50;
/// Pages at most: `offset` counts pages from 0 to 9.
const PAGES: usize = 10;

pub struct Brave {
    key: HeaderValue,
}

impl Brave {
    pub fn new(key: &str) -> Result<Self, Fault> {
        let wrong =
            |_| Fault::invalid("there is no `web_search`: the key of `brave` holds what no header can");
        let mut key = HeaderValue::from_str(key).map_err(wrong)?;
        key.set_sensitive(true);
        Ok(Self { key })
    }
}

impl SearchApi for Brave {
    fn name(&self) -> &'static str {
        "Brave"
    }

    fn usual(&self) -> Option<&'static str> {
        Some("https://api.search.brave.com")
    }

    fn pages(&self) -> usize {
        PAGES
    }

    fn request(&self, base: &Url, query: &SearchQuery) -> Result<(Url, Request<Full<Bytes>>), Fault> {
        let words = query.text.split_whitespace().count();
        if words > WORDS {
            return Err(Fault::invalid(format!("the query has {words} words, Brave takes {WORDS}")));
        }
        let mut url = below(base, "res/v1/web/search")?;
        url.query_pairs_mut()
            .append_pair("q", &query.text)
            .append_pair("count", &query.count.to_string())
            .append_pair("offset", &(query.page - 1).to_string())
            .append_pair("result_filter", "web")
            // Without marks of HTML around the words that were found.
            .append_pair("text_decorations", "false");
        let request = Request::get(path(&url))
            .header(ACCEPT, "application/json")
            .header("X-Subscription-Token", self.key.clone())
            .body(Full::default());
        Ok((url, request.map_err(Fault::internal)?))
    }

    fn results(&self, answer: &Value) -> Result<Vec<Found>, &'static str> {
        if answer["type"] != "search" {
            return Err("it is no answer to a search");
        }
        // Where nothing was found there is no `web`.
        let results = answer["web"]["results"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(results
            .iter()
            .map(|one| Found {
                title: text(one, "title"),
                address: text(one, "url"),
                text: text(one, "description"),
                day: text(one, "page_age"),
            })
            .collect())
    }

    fn advice(&self, status: StatusCode) -> Option<&'static str> {
        match status.as_u16() {
            401 | 403 | 422 => {
                Some("look at `extensions.web.search.key`, and at the plan that the key belongs to")
            }
            429 => Some("the plan of the key allows no more at the moment"),
            _ => None,
        }
    }
}
