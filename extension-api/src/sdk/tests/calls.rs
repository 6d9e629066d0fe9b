//! What tools take and give, and what a call may do.

use std::{pin::pin, sync::Mutex, time::Duration};

use serde_json::{Value, json};

use super::{message, poll_once, started};
use crate::{
    EffectClass,
    prelude::*,
    sdk::Exported,
    testing::{Harness, block_on},
};

struct Many {
    host: Host,
    kept: Mutex<Option<Call>>,
    feed: futures_util::lock::Mutex<Option<Subscription>>,
}

#[derive(Serialize)]
struct Point {
    x: i32,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Colour {
    Red,
}

#[derive(Deserialize, JsonSchema)]
struct Nested {
    /// What to add to.
    base: Inner,
    #[serde(default)]
    more: Vec<i64>,
}

#[derive(Deserialize, JsonSchema)]
struct Inner {
    value: i64,
}

impl Extension for Many {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        Ok(Many { host, kept: Mutex::default(), feed: futures_util::lock::Mutex::default() })
    }
}

impl ToolProvider for Many {
    fn tools(&self) -> Vec<Tool<Self>> {
        let spec = ToolSpec {
            name: ToolName::new("remote_one").expect("a name"),
            description: "Elsewhere.".to_owned(),
            input_schema: json!({"type": "object"}),
            instructions: None,
            annotations: ToolAnnotations::default(),
        };
        vec![
            Tool::new("many_text", "", Many::text).read_only(),
            Tool::new("many_point", "", Many::point).idempotent().timeout(Duration::from_secs(2)),
            Tool::new("many_colour", "", Many::colour).destructive().needs_approval().outward(),
            Tool::new("many_add", "", Many::add).exclusive().reads_untrusted().instructions("Add."),
            Tool::new("many_agent", "", Many::agent).item(ItemKind::CommandExecution),
            Tool::new("many_debug", "", Many::debug),
            Tool::new("many_late", "", Many::late),
            Tool::new("many_next", "", Many::next),
            Tool::new("many_once", "", Many::text).once().lookup(Many::happened),
            Tool::new("many_seen", "", Many::point).preview(Many::would),
            Tool::dynamic(spec, Many::forward),
        ]
    }
}

crate::abilities!(Many: Tool);

impl Many {
    async fn text(&self, _: NoInput, _: Call) -> Result<String, Fault> {
        Ok("a \"text\"\n".to_owned())
    }

    async fn point(&self, _: NoInput, _: Call) -> Result<Point, Fault> {
        Ok(Point { x: -1 })
    }

    async fn would(&self, _: NoInput, call: Call) -> Result<ToolPreview, Fault> {
        let refused = call.call_tool("kv_get", &json!({})).await.err();
        let text = refused.map_or("called".to_owned(), |fault| format!("{:?}", fault.code));
        Ok(ToolPreview { text, seal: Some(call.effect_id.to_string()), input: None })
    }

    async fn colour(&self, _: NoInput, _: Call) -> Result<Colour, Fault> {
        Ok(Colour::Red)
    }

    async fn add(&self, input: Nested, _: Call) -> Result<i64, Fault> {
        Ok(input.base.value + input.more.iter().sum::<i64>())
    }

    async fn forward(&self, params: Value, call: Call) -> Result<String, Fault> {
        Ok(format!("{} {params}", call.tool().map_or("?", ToolName::as_str)))
    }

    async fn happened(&self, effect: EffectId) -> Result<LookupResult, Fault> {
        Ok(match effect.as_str() {
            "effect-1" => LookupResult::Done { content: "it did".to_owned() },
            _ => LookupResult::NotDone,
        })
    }

    /// Calls back in all the ways that there are, and keeps the call.
    async fn agent(&self, _: NoInput, call: Call) -> Result<Vec<String>, Fault> {
        let definition = serde_json::from_value(json!({"id": "test"}))?;
        let ran = call.run_agent(definition, "add").own_tools(["many_add"]).await?;
        let asked = call.invoke_agent("poet", "a haiku").summary("spring").await?;
        let got = call.call_tool("kv_get", &json!({"key": "a"})).await?;
        *self.kept.lock().expect("no panic") = Some(call);
        Ok(vec![ran.content, asked.content, got.content])
    }

    async fn debug(&self, _: NoInput, call: Call) -> Result<String, Fault> {
        Ok(format!("{:?} {call:?}", self.host))
    }

    async fn late(&self, _: NoInput, _: Call) -> Result<String, Fault> {
        let kept = self.kept.lock().expect("no panic").clone();
        let kept = kept.ok_or_else(|| Fault::invalid("nothing was kept"))?;
        Ok(kept.call_tool("kv_get", &json!({})).await?.content)
    }

    async fn next(&self, _: NoInput, _: Call) -> Result<Option<BusMessage>, Fault> {
        let mut feed = self.feed.lock().await;
        if feed.is_none() {
            *feed = Some(self.host.subscribe("kv.changed").await?);
        }
        match feed.as_mut() {
            Some(feed) => feed.next().await,
            None => Ok(None),
        }
    }
}

fn check(tool: &str, params: Value, expected: &str) {
    assert_eq!(block_on(started::<Many>().call(tool, params)), Ok(expected.to_owned()), "{tool}");
}

#[test]
fn text_reaches_the_model_as_text_and_anything_else_as_json() {
    check("many_text", json!({}), "a \"text\"\n");
    check("many_point", json!({}), r#"{"x":-1}"#);
    check("many_colour", json!({}), "red");
    check("many_add", json!({"base": {"value": 2}, "more": [3, 4]}), "9");
    check("remote_one", json!({"a": [1]}), r#"remote_one {"a":[1]}"#);
}

#[test]
fn parameters_that_do_not_fit_are_invalid_and_say_where() {
    let said = block_on(started::<Many>().call("many_add", json!({"base": {}})));
    assert!(message(said, FaultCode::Invalid).contains("`value` is missing"));
}

#[test]
fn the_schema_is_that_of_the_type_with_everything_in_place() {
    let described = started::<Many>().describe().expect("a description");
    let tool = |name: &str| {
        described.tools.iter().find(|tool| tool.name.as_str() == name).expect("the tool").clone()
    };
    let schema = &tool("many_add").input_schema;
    assert_eq!(schema["properties"]["base"]["description"], "What to add to.");
    assert_eq!(schema["properties"]["base"]["properties"]["value"]["type"], "integer");
    assert_eq!(schema["required"], json!(["base"]));
    assert!(schema.get("$schema").is_none() && schema.get("title").is_none());
    assert_eq!(tool("many_text").input_schema["type"], "object");

    let annotations = |name| tool(name).annotations;
    assert!(annotations("many_text").read_only);
    assert_eq!(annotations("many_text").effect, EffectClass::Pure);
    assert_eq!(annotations("many_point").effect, EffectClass::Idempotent);
    assert_eq!(annotations("many_point").timeout_ms, Some(2000));
    let colour = annotations("many_colour");
    assert!(colour.destructive && colour.needs_approval && colour.outward && !colour.read_only);
    assert_eq!(colour.effect, EffectClass::Once);
    assert!(annotations("many_add").exclusive && annotations("many_add").reads_untrusted);
    assert_eq!(tool("many_add").instructions.as_deref(), Some("Add."));
    assert_eq!(annotations("many_agent").item, ItemKind::CommandExecution);
}

#[test]
fn a_lookup_says_what_became_of_a_call_where_the_tool_has_one() {
    let many = started::<Many>();
    let ask = |tool, effect| block_on(many.lookup(tool, effect)).expect("an answer");
    assert_eq!(ask("many_once", "effect-1"), LookupResult::Done { content: "it did".to_owned() });
    assert_eq!(ask("many_once", "effect-2"), LookupResult::NotDone);
    assert_eq!(ask("many_text", "effect-1"), LookupResult::Unknown);
}

#[test]
fn a_tool_says_what_a_call_would_change_where_it_can_and_can_do_nothing_meanwhile() {
    let many = started::<Many>();
    let labelled = |name: &str| {
        let tools = many.describe().expect("a description").tools;
        tools.into_iter().find(|tool| tool.name.as_str() == name).expect("a tool").annotations.previews
    };
    assert!(labelled("many_seen") && !labelled("many_point"));
    let said = block_on(many.calling().preview("many_seen", json!({}))).expect("a preview");
    assert_eq!((said.text.as_str(), said.seal.as_deref()), ("Denied", Some("effect-1")));
    let none = block_on(many.calling().preview("many_point", json!({}))).expect_err("it has none");
    assert_eq!(none.code, FaultCode::Unsupported);
}

#[test]
fn a_call_may_run_agents_and_tools_while_it_lives_and_not_afterwards() {
    let many = started::<Many>();
    let host = many.host();
    let add = ("many_add", json!({"base": {"value": 1}}));
    host.script_run([add, ("many_text", json!({}))], AgentResponse::success("added"));
    host.answer_agent("poet", AgentResponse::success("a poem"));
    host.answer_tool("kv_get", Ok("1")).answer_tool("kv_get", Ok("2"));

    assert_eq!(block_on(many.call("many_agent", json!({}))), Ok(r#"["added","a poem","1"]"#.to_owned()));
    let own = host.own_tool_results();
    assert_eq!(own[0], Ok("1".to_owned()));
    assert!(message(own[1].clone(), FaultCode::Denied).contains("`many_text`"));
    assert_eq!(host.agent_runs()[0].task, "add");
    assert_eq!(host.agent_calls()[0].summary.as_deref(), Some("spring"));
    assert_eq!(host.tool_calls()[0].1, json!({"key": "a"}));

    message(block_on(many.call("many_late", json!({}))), FaultCode::Denied);
}

#[test]
fn a_subscription_gives_messages_in_order_and_loses_none_when_a_reader_is_dropped() {
    let many = started::<Many>();
    let next = || many.call("many_next", json!({}));
    {
        let mut cancelled = pin!(next());
        assert!(poll_once(cancelled.as_mut()).is_pending());
        many.host().publish("kv.other", json!(0));
        many.host().publish("kv.changed", json!(1));
        many.host().publish("kv.changed", json!(2));
    }
    for expected in ["1", "2"] {
        let got = block_on(next()).expect("a message");
        assert!(got.contains(&format!(r#""payload":{expected}"#)), "{got}");
    }
    many.host().end_topic("kv.changed");
    assert_eq!(block_on(next()), Ok("null".to_owned()));
}

#[test]
fn a_subscription_ends_with_its_reader() {
    let many = started::<Many>();
    many.host().publish("kv.changed", json!(0));
    let mut reading = pin!(many.call("many_next", json!({})));
    assert!(poll_once(reading.as_mut()).is_pending());
    assert_eq!(many.host().subscriptions(), ["kv.changed"]);
    many.host().end_topic("kv.changed");
    assert_eq!(block_on(reading), Ok("null".to_owned()));
    many.close();
    assert!(many.host().subscriptions().is_empty());
}

/// Tools whose fault shows only at run time.
struct Odd {
    name: String,
    twice: bool,
    weight: u32,
}

#[derive(Deserialize)]
struct OddConfig {
    name: String,
    #[serde(default)]
    twice: bool,
    #[serde(default)]
    weight: u32,
}

impl Extension for Odd {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let OddConfig { name, twice, weight } = host.config()?;
        Ok(Odd { name, twice, weight })
    }
}

impl ToolProvider for Odd {
    fn tools(&self) -> Vec<Tool<Self>> {
        let name = self.name.as_str();
        match self.twice {
            true => vec![Tool::new(name, "", Odd::empty), Tool::new(name, "", Odd::empty)],
            false => vec![Tool::new(name, "", Odd::nothing).weight(self.weight)],
        }
    }
}

impl Odd {
    async fn empty(&self, _: NoInput, _: Call) -> Result<(), Fault> {
        Ok(())
    }

    async fn nothing(&self, _: String, _: Call) -> Result<(), Fault> {
        Ok(())
    }
}

crate::abilities!(Odd: Tool);

fn refused<E: Exported>(config: Value, expected: &str) {
    let said = message(block_on(Harness::<E>::start(config)), FaultCode::Invalid);
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_tool_that_cannot_be_fails_initialize_by_name() {
    refused::<Odd>(json!({"name": "two words", "weight": 1}), "`two words` is not valid");
    refused::<Odd>(json!({"name": "odd", "weight": 17}), "`odd` has a weight of 17");
    refused::<Odd>(json!({"name": "odd", "weight": 1}), "`odd` is not an object");
    refused::<Odd>(json!({"name": "odd", "twice": true}), "`odd` is there twice");
    refused::<Odd>(json!({}), "the configuration of `test` cannot be used: missing field `name`");
}

#[test]
fn debug_output_shows_neither_token_nor_secret() {
    let many = block_on(Harness::<Many>::setup().secret("KEY", "hidden-value").start()).expect("it starts");
    let shown = block_on(many.call("many_debug", json!({}))).expect("a text");
    assert!(shown.contains("session-1") && !shown.contains("token-") && !shown.contains("hidden"), "{shown}");
}
