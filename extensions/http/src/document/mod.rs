//! The document of the API, put together from the list of routes and the types of their bodies.
//!
//! It is made where it is tested, and what is served is the file that the test keeps: see `routes::openapi`. Shapes of other
//! vendors have no types here, since they are read and written by hand; they are described as `docs/reference/wire-formats.md`
//! has them.

mod control;
mod operation;
mod rest;
mod schemas;
mod vendors;
mod web;

use std::collections::BTreeMap;

use axum::http::Method;
use serde_json::{Map, Value, json};

use self::{operation::ApiOperation, schemas::TypeSchemas};
use crate::routes;

/// Where the file is that is served.
const KEPT: &str = "../../docs/reference/openapi.json";

/// The forms of failures: ours and those of other vendors.
const FAILURES: [&str; 3] = ["FaultBody", "OpenAiError", "AnthropicError"];

const ABOUT: &str = "Agents and sessions of a drupe daemon, over HTTP.\n\n\
    Every request needs a named token, made with `drupe token new NAME`, but for those without a security requirement. A request \
    whose `Host` is not one of the server's is answered with 403, so is one whose `Origin` is not known. What is not HTTP is \
    answered with 400, and a head that is too large with 431, both without a body. Whole numbers are written without a point. `Idempotency-Key` makes a repeated request the \
    same message.";

fn operations(schemas: &mut TypeSchemas) -> Vec<ApiOperation> {
    let mut all = web::operations(schemas);
    all.extend(rest::operations(schemas));
    all.extend(control::operations(schemas));
    all.extend(vendors::operations(schemas));
    all
}

fn document() -> Value {
    let mut schemas = TypeSchemas::new();
    let mut paths: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for operation in operations(&mut schemas) {
        let method = operation.method.as_str().to_ascii_lowercase();
        let before =
            paths.entry(operation.path.replace("{*", "{")).or_default().insert(method, operation.value());
        assert!(before.is_none(), "{} {} is described twice", operation.method, operation.path);
    }
    let mut paths = json!(paths);
    let schemas = schemas.place(&mut paths);
    let responses = shared(&mut paths);
    json!({
        "openapi": "3.1.0",
        "info": { "title": "drupe", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" } },
        "servers": [{ "url": "/" }],
        "tags": [
            { "name": "page", "description": "The web page, and how a browser comes to it." },
            { "name": "daemon", "description": "The server, the daemon behind it, and figures of both." },
            { "name": "agents", "description": "Tasks for agents." },
            { "name": "sessions", "description": "Conversations and their turns." },
            { "name": "control", "description": "The control API, a path for each of its methods." },
            { "name": "openai", "description": "What clients of OpenAI call; each agent is a model." },
            { "name": "anthropic", "description": "What clients of Anthropic call; each agent is a model." },
            { "name": "protocols", "description": "Protocols of other programs, whose messages they define." },
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": responses,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer",
                    "description": "A token that `drupe token new NAME` made." },
                "key": { "type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same, as Anthropic's clients send it." },
                "cookie": { "type": "apiKey", "in": "cookie", "name": crate::credentials::COOKIE,
                    "description": "What the link of `drupe open` gives a browser. A request that changes something needs the \
                                    header `X-Drupe-Request` as well." },
            },
        },
    })
}

/// Puts what many operations answer alike into one place: their failures, by the form and the status.
fn shared(paths: &mut Value) -> Map<String, Value> {
    let mut all = Map::new();
    let operations = paths.as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    for operation in operations.filter_map(Value::as_object_mut).flat_map(|methods| methods.values_mut()) {
        for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
            let form = response.pointer("/content/application~1json/schema/$ref").and_then(Value::as_str);
            let form = form.and_then(|form| form.rsplit('/').next()).filter(|form| FAILURES.contains(form));
            let Some(name) = form.map(|form| format!("{form}{status}")) else { continue };
            if all.entry(&name).or_insert_with(|| response.clone()) == response {
                *response = json!({ "$ref": format!("#/components/responses/{name}") });
            }
        }
    }
    all
}

/// The text of the document, with a line for each operation and for each schema: so a change shows where it is, and what is
/// served is not twice as long.
fn written(value: &Value, depth: usize) -> String {
    match value {
        Value::Object(fields) if depth < 3 && !fields.is_empty() => {
            let (inner, outer) = (" ".repeat(depth + 1), " ".repeat(depth));
            let field = |(key, value): (&String, &Value)| {
                format!("{inner}{}: {}", json!(key), written(value, depth + 1))
            };
            format!("{{\n{}\n{outer}}}", fields.iter().map(field).collect::<Vec<_>>().join(",\n"))
        }
        other => other.to_string(),
    }
}

/// Whether an operation of the document is served by a route.
fn serves(route: &routes::ServedRoute, operation: &ApiOperation) -> bool {
    route.method == operation.method && route.path == operation.route
}

fn get(path: &'static str, tag: &str, does: &str, failure: &Value) -> ApiOperation {
    ApiOperation::new(Method::GET, path, tag, does, failure)
}

fn post(path: &'static str, tag: &str, does: &str, failure: &Value) -> ApiOperation {
    ApiOperation::new(Method::POST, path, tag, does, failure)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;

    #[test]
    fn each_route_is_described_and_nothing_else_is() {
        let (routes, described) = (routes::table(), operations(&mut TypeSchemas::new()));
        for route in &routes {
            let found = described.iter().any(|operation| serves(route, operation));
            assert!(found, "{} {} is not in the document", route.method, route.path);
        }
        for operation in &described {
            let found = routes.iter().any(|route| serves(route, operation));
            assert!(found, "{} {} is not served", operation.method, operation.path);
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test is its own entry point")]
    fn the_document_that_is_served_is_what_the_code_says() {
        let made = written(&document(), 0) + "\n";
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(KEPT);
        if std::env::var_os("DRUPE_BLESS").is_some() {
            std::fs::write(&kept, &made).expect("it can be written");
            return;
        }
        let found = std::fs::read_to_string(&kept).unwrap_or_default();
        assert!(
            found == made,
            "docs/reference/openapi.json is older than the code: `just bless` writes it anew"
        );
    }

    #[test]
    fn each_reference_leads_to_a_schema_and_each_operation_has_a_name_of_its_own() {
        fn all<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
                    Value::String(text) if name == key => found.push(text),
                    _ => all(value, key, found),
                }),
                Value::Array(items) => items.iter().for_each(|item| all(item, key, found)),
                _ => {}
            }
        }
        let document = document();
        let mut references = Vec::new();
        all(&document, "$ref", &mut references);
        assert!(references.len() > 50, "types are shared");
        for reference in &references {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
        let used: BTreeSet<_> =
            references.iter().filter_map(|reference| reference.rsplit('/').next()).collect();
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let unused: Vec<_> = schemas.keys().filter(|name| !used.contains(name.as_str())).collect();
        assert!(unused.is_empty(), "nothing refers to {unused:?}");
        let mut names = Vec::new();
        all(&document["paths"], "operationId", &mut names);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
}
