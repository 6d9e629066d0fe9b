//! Tavily's search API (docs.tavily.com/api-reference/endpoint/search, and tavily/tavily.py in
//! github.com/tavily-ai/tavily-python, seen 2026-11-24). It has one page of at most 20 results, and takes its queries by POST.

use drupe_extension_api::Fault;
use http_body_util::Full;
use hyper::{
    Request, StatusCode,
    body::Bytes,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use serde_json::{Value, json};
use url::Url;

use super::{Found, SearchApi, SearchQuery, below, text};
use crate::fetch::path;

pub struct Tavily {
    bearer: HeaderValue,
}

impl Tavily {
    pub fn new(key: &str) -> Result<Self, Fault> {
        let wrong =
            |_| Fault::invalid("there is no `web_search`: the key of `tavily` holds what no header can");
        let mut bearer = HeaderValue::from_str(&format!("Bearer {key}")).map_err(wrong)?;
        bearer.set_sensitive(true);
        Ok(Self { bearer })
    }
}

impl SearchApi for Tavily {
    fn name(&self) -> &'static str {
        "Tavily"
    }

    fn usual(&self) -> Option<&'static str> {
        Some("https://api.tavily.com")
    }

    fn pages(&self) -> usize {
        1
    }

    fn request(&self, base: &Url, query: &SearchQuery) -> Result<(Url, Request<Full<Bytes>>), Fault> {
        let url = below(base, "search")?;
        // `basic` costs one credit, what is deeper more.
        let body = json!({"query": query.text, "max_results": query.count, "search_depth": "basic"});
        let request = Request::post(path(&url))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, self.bearer.clone())
            .body(Full::from(body.to_string()));
        Ok((url, request.map_err(Fault::internal)?))
    }

    fn results(&self, answer: &Value) -> Result<Vec<Found>, &'static str> {
        let results = answer["results"].as_array().ok_or("it holds no `results`")?;
        Ok(results
            .iter()
            .map(|one| Found {
                title: text(one, "title"),
                address: text(one, "url"),
                text: text(one, "content"),
                day: text(one, "published_date"),
            })
            .collect())
    }

    fn advice(&self, status: StatusCode) -> Option<&'static str> {
        match status.as_u16() {
            401 => Some("look at `extensions.web.search.key`"),
            429 => Some("the key asks too often at the moment"),
            432 | 433 => Some("the plan of the key is used up, or its limit of spending is reached"),
            _ => None,
        }
    }
}
