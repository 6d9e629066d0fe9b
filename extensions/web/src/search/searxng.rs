//! SearXNG's search API (docs.searxng.org/dev/search_api.html and `get_json_response` of searx/webutils.py in
//! github.com/searxng/searxng, seen 2026-11-24). How many results a page has is up to the instance.

use drupe_extension_api::Fault;
use http_body_util::Full;
use hyper::{Request, StatusCode, body::Bytes, header::ACCEPT};
use serde_json::Value;
use url::Url;

use super::{Found, SearchApi, SearchQuery, below, text};
use crate::fetch::path;

pub struct Searxng;

impl SearchApi for Searxng {
    fn name(&self) -> &'static str {
        "SearXNG"
    }

    fn usual(&self) -> Option<&'static str> {
        None
    }

    fn pages(&self) -> usize {
        // It names no last one; engines end far below.
        100
    }

    fn request(&self, base: &Url, query: &SearchQuery) -> Result<(Url, Request<Full<Bytes>>), Fault> {
        let mut url = below(base, "search")?;
        url.query_pairs_mut()
            .append_pair("q", &query.text)
            .append_pair("format", "json")
            .append_pair("pageno", &query.page.to_string());
        let request = Request::get(path(&url)).header(ACCEPT, "application/json").body(Full::default());
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
                day: text(one, "publishedDate"),
            })
            .collect())
    }

    fn advice(&self, status: StatusCode) -> Option<&'static str> {
        match status.as_u16() {
            403 => Some("add `json` to `search.formats` in the settings.yml of the instance"),
            429 => Some("the instance limits who asks: its operator can exempt this machine"),
            _ => None,
        }
    }
}
