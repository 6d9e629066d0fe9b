//! The list of models in both shapes.

use drupe_http_compat::{
    Vendor,
    models::{ModelPage, ServedModel, anthropic_list, openai_list},
};
use serde_json::json;

fn models(count: usize) -> Vec<ServedModel> {
    (0..count).map(|n| ServedModel { id: format!("a{n}"), name: format!("Agent {n}") }).collect()
}

#[test]
fn openai_gets_the_whole_list() {
    let list = openai_list(&models(30));
    assert_eq!(list["data"].as_array().map(Vec::len), Some(30));
    assert_eq!(list["data"][0], json!({"id": "a0", "object": "model", "created": 0, "owned_by": "drupe"}));
}

#[test]
fn anthropic_reads_every_model_once_in_either_direction() {
    let models = models(45);
    for (forward, cursor, last) in [(true, "after_id", "last_id"), (false, "before_id", "first_id")] {
        let mut seen = Vec::new();
        let mut at = if forward { None } else { Some("a44".to_owned()) };
        loop {
            let query = [("limit", "7")].into_iter().chain(at.as_deref().map(|id| (cursor, id)));
            let page = anthropic_list(&models, &ModelPage::parse(query).expect("a page")).expect("a list");
            let ids = page["data"].as_array().expect("models").iter().map(|m| m["id"].to_string());
            seen.extend(ids);
            if page["has_more"] == false {
                break;
            }
            at = page[last].as_str().map(str::to_owned);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), if forward { 45 } else { 44 });
    }
}

#[test]
fn a_page_that_cannot_be_is_refused() {
    for query in [("limit", "0"), ("limit", "1001"), ("limit", "x"), ("limit", "-1")] {
        assert!(ModelPage::parse([query]).is_err(), "{query:?}");
    }
    assert!(ModelPage::parse([("after_id", "a1"), ("before_id", "a2")]).is_err());
    let nobody = ModelPage::parse([("after_id", "nobody")]).expect("a page");
    assert_eq!(anthropic_list(&models(3), &nobody).map_err(|no| no.status(Vendor::Anthropic)), Err(404));
}

#[test]
fn nobody_is_retired() {
    let page = ModelPage::parse([("lifecycle[]", "retired")]).expect("a page");
    assert_eq!(anthropic_list(&models(3), &page).expect("a list")["data"], json!([]));
    let page = ModelPage::parse([("lifecycle", "retired"), ("lifecycle", "active")]).expect("a page");
    assert_eq!(anthropic_list(&models(3), &page).expect("a list")["data"][2]["lifecycle"], "active");
}

#[test]
fn the_headers_tell_whose_client_it_is() {
    let of = |sent: &'static str| Vendor::of(move |name| (name == sent).then_some("x"));
    assert_eq!(of("anthropic-version"), Vendor::Anthropic);
    assert_eq!(of("x-api-key"), Vendor::Anthropic);
    assert_eq!(of("authorization"), Vendor::OpenAi);
}
