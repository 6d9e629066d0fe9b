//! Every limit that a manifest or `drupe.yaml` sets, met once by a running daemon: how the turn ended, what it said, what
//! was spent, and how often the model was asked. With `--nocapture` the rows make a table.

mod overlap;
mod quotas;
mod runs;
mod shown;

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, offered},
};

/// What the model server reports for each request.
const TOKENS: u64 = 60;

/// A daemon with agents that use the faulty tools, and whose model does what the test says.
struct House {
    server: ModelServer,
    daemon: Daemon,
}

/// An agent: its id, and what stands under `agent` beside its model and its instructions.
type AgentOf<'a> = (&'a str, &'a str);

impl House {
    /// `profile` is what is known of the model, `config` stands in `drupe.yaml`.
    fn build(
        profile: &str,
        config: &str,
        agents: &[AgentOf<'_>],
        model: impl Fn(&Value) -> Say + Send + Sync + 'static,
    ) -> Self {
        Self::on(ModelServer::start(model), profile, config, agents)
    }

    /// On a model server that is there.
    fn on(server: ModelServer, profile: &str, config: &str, agents: &[AgentOf<'_>]) -> Self {
        let profiles = format!("  profiles: {{local/test: {{{profile}}}}}\n");
        let mut daemon = Daemon::home(&(server.config() + &profiles + config));
        daemon.plugin("faulty", "faulty", "scope: agents\n");
        for (id, rest) in agents {
            let head = format!("id: {id}\nname: {id}\ndescription: The agent {id}.\nagent:\n");
            let model = if rest.contains("  model:") { "" } else { "  model: default\n" };
            let agent = format!("{head}{model}  instructions: You are {id}.\n{rest}");
            daemon.write(&format!("extensions/{id}/manifest.yaml"), &agent);
        }
        daemon.run();
        Self { server, daemon }
    }

    fn requests(&self) -> usize {
        self.server.requests().len()
    }

    /// The use of a limit that stopped work in a session, as its event tells it.
    fn exceeded(&self, session: &str) -> Vec<Value> {
        self.told(session, "interaction.budget.exceeded")
    }

    /// The data of all events of a kind.
    fn told(&self, session: &str, kind: &str) -> Vec<Value> {
        let events = self.daemon.events(session);
        events.iter().filter(|event| event["kind"] == kind).map(|event| event["data"].clone()).collect()
    }
}

/// A line of the table.
fn row(limit: &str, turn: &Value, message: &str, requests: usize) {
    let status = turn["status"].as_str().unwrap_or("–");
    let class = turn["class"].as_str().unwrap_or("–");
    let spend = &turn["spend"];
    let tokens = tokens(turn);
    let cost = spend["cost_usd"].as_f64().map_or("no known cost".to_owned(), |usd| format!("${usd:.4}"));
    let message = message.replace('\n', " ");
    println!("| `{limit}` | {status}/{class} | {message} | {tokens} tokens, {cost} | {requests} |");
}

/// Input and output tokens of the whole tree.
fn tokens(turn: &Value) -> u64 {
    let usage = &turn["spend"]["usage"];
    usage["input_tokens"].as_u64().unwrap_or(0) + usage["output_tokens"].as_u64().unwrap_or(0)
}

fn field(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

/// What the tools of a turn answered, with how.
fn results(turn: &Value) -> Vec<(String, String)> {
    let entries = turn["transcript"].as_array().cloned().unwrap_or_default();
    let tools = entries.iter().filter(|entry| entry["role"] == "tool");
    tools.map(|tool| (field(tool, "status"), field(tool, "content"))).collect()
}

fn call(tool: &str, parameters: Value) -> Say {
    Say::Call(vec![(tool.to_owned(), parameters)])
}

/// How many answers the model gave before in this run.
fn answers(request: &Value) -> usize {
    request["messages"].as_array().expect("messages").iter().filter(|m| m["role"] == "assistant").count()
}

/// A model that calls a tool for ever, with other parameters each time.
fn restless(tool: &'static str) -> impl Fn(&Value) -> Say + Send + Sync + 'static {
    move |request| call(tool, json!({"n": answers(request)}))
}

/// Who has `agent_two` calls it so often at once; `two` answers.
fn spread(request: &Value, times: usize) -> Say {
    match offered(request).contains(&"agent_two".to_owned()) && answers(request) == 0 {
        true => {
            Say::Call((0..times).map(|n| ("agent_two".to_owned(), json!({"task": n.to_string()}))).collect())
        }
        false => Say::Text("done".into()),
    }
}
