//! A fault, the daemon in which it happens, and what an operator is told of it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
};

/// Tokens that the model server reports for one answer.
pub const INPUT: u64 = 50;
pub const OUTPUT: u64 = 10;

type Model = Box<dyn Fn(&Value) -> Say + Send + Sync>;

/// What goes wrong, and how the daemon is set up for it.
pub struct Fault {
    model: Model,
    config: String,
    prepare: Box<dyn FnOnce(&Daemon)>,
}

impl Fault {
    /// With this model.
    pub fn new(model: impl Fn(&Value) -> Say + Send + Sync + 'static) -> Self {
        Self { model: Box::new(model), config: String::new(), prepare: Box::new(|_| ()) }
    }

    /// With a model that calls the tool that its task names (`tool {parameters}`), and then repeats the result.
    pub fn obedient() -> Self {
        Self::new(|request| {
            let (role, text) = latest(request);
            let task = text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task);
            let call = task.split_once(' ').and_then(|(tool, parameters)| {
                let parameters: Value = serde_json::from_str(parameters).ok()?;
                (role == "user" && parameters.is_object()).then(|| (tool.to_owned(), parameters))
            });
            call.map_or(Say::Text(task.to_owned()), |call| Say::Call(vec![call]))
        })
    }

    /// With more of a configuration, which goes on within the only provider of the models.
    pub fn config(self, config: &str) -> Self {
        Self { config: self.config + config, ..self }
    }

    /// With more in the home.
    pub fn prepare(self, prepare: impl FnOnce(&Daemon) + 'static) -> Self {
        Self { prepare: Box::new(prepare), ..self }
    }

    /// The daemon, its model, and how often that answered.
    pub fn start(self) -> (ModelServer, Daemon, Arc<AtomicUsize>) {
        let Self { model, config, prepare } = self;
        let answered = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&answered);
        let server = ModelServer::start(move |request| {
            let say = model(request);
            if !matches!(say, Say::Fail(_)) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            say
        });
        let mut daemon = Daemon::home(&(server.config() + &config));
        daemon.plugin("faulty", "faulty", "");
        prepare(&daemon);
        daemon.run();
        (server, daemon, answered)
    }

    /// Has a message answered.
    pub fn ask(self, message: &str) -> Asked {
        let (server, daemon, answered) = self.start();
        let turn = daemon.submit("s", message);
        daemon.wait(&turn);
        Asked { server, daemon, turn, answered }
    }
}

/// A turn that has ended.
pub struct Asked {
    pub server: ModelServer,
    pub daemon: Daemon,
    pub turn: String,
    pub answered: Arc<AtomicUsize>,
}

impl Asked {
    /// Has one more message answered.
    pub fn again(self, message: &str) -> Self {
        let turn = self.daemon.submit("s", message);
        self.daemon.wait(&turn);
        Self { turn, ..self }
    }

    /// What [`Asked::explains`] looks at; and the trace shows every request that the model got, and usage is what the
    /// model counted, with an estimate for what it did not count.
    pub fn tells(&self, title: &str, said: &[&str], tables: &[&str]) -> Value {
        self.attempts(title);
        self.usage(title);
        self.explains(title, said, tables)
    }

    /// What an operator reads has these fragments, and rests on rows of these tables that are there.
    pub fn explains(&self, title: &str, said: &[&str], tables: &[&str]) -> Value {
        let why = self.daemon.json(&["why", &self.turn, "--json"]);
        let sentences: Vec<&str> =
            why["sentences"].as_array().expect("sentences").iter().filter_map(Value::as_str).collect();
        let all = format!("{}\n{}", sentences.join("\n"), why["remedy"].as_str().unwrap_or_default());
        for fragment in said {
            assert!(all.contains(fragment), "{title}: `{fragment}` is not in\n{all}\n{}", self.daemon.log());
        }
        let shown = self.daemon.says(&["why", &self.turn]);
        assert!(shown.contains("Because:") && shown.contains(&self.turn), "{shown}");
        let cited = self.cited(&why);
        for table in tables {
            assert!(cited.contains(*table), "{title}: no row of `{table}` is cited: {why:#}");
        }
        println!("{title} | {} | {}", sentences[0], Vec::from_iter(cited).join(", "));
        why
    }

    /// The tables of the rows that an explanation rests on. Each row is there.
    fn cited(&self, why: &Value) -> BTreeSet<String> {
        let events = self.daemon.events("s");
        let cited = why["cited"].as_array().expect("rows");
        assert!(!cited.is_empty(), "{why}");
        for row in cited {
            let key = row["key"].as_str().expect("a key");
            let there = match row["table"].as_str().expect("a table") {
                "turns" => key == self.turn,
                "entries" => key.parse::<u64>().is_ok(),
                "events" => events.iter().any(|e| key == format!("s/{}", e["seq"])),
                _ => true,
            };
            assert!(there, "no such row: {row}");
        }
        cited.iter().map(|row| row["table"].as_str().expect("a table").to_owned()).collect()
    }

    fn attempts(&self, title: &str) {
        let traces = self.daemon.json(&["trace", "s", "--all", "--json"]);
        let traces = traces.as_array().expect("a list");
        let all: Vec<Value> = traces.iter().flat_map(|trace| nodes(&trace["nodes"])).collect();
        let attempts = all.iter().filter(|node| node["kind"] == "model").count();
        assert_eq!(attempts, self.server.requests().len(), "{title}: {traces:#?}");
        assert!(all.iter().all(|node| node["outcome"].is_string()), "everything has ended: {all:#?}");
    }

    fn usage(&self, title: &str) {
        let answered = self.answered.load(Ordering::SeqCst) as u64;
        let events = self.daemon.events("s");
        let attempts =
            events.iter().filter(|e| e["kind"] == "interaction.model.attempt").map(|e| e["data"].clone());
        let (estimated, reported): (Vec<Value>, Vec<Value>) = attempts.partition(|a| a["estimated"] == true);
        let (estimated, reported) = (tokens(&json!(estimated)), tokens(&json!(reported)));
        assert_eq!(reported, (INPUT * answered, OUTPUT * answered), "{title}: {events:#?}");
        let rows = self.daemon.json(&["usage", "--json"]);
        let all = (reported.0 + estimated.0, reported.1 + estimated.1);
        assert_eq!(tokens(&rows), all, "{title}: {rows:#}");
    }
}

/// A node of a trace and all below it.
pub fn nodes(nodes: &Value) -> Vec<Value> {
    let nodes = nodes.as_array().map_or(&[][..], Vec::as_slice);
    nodes.iter().flat_map(|node| std::iter::once(node.clone()).chain(self::nodes(&node["nodes"]))).collect()
}

/// Tokens that rows of usage sum up to: in, out.
pub fn tokens(rows: &Value) -> (u64, u64) {
    let sum = |kind: &str| -> u64 {
        let rows = rows.as_array().expect("rows").iter();
        rows.map(|row| row["usage"][kind].as_u64().unwrap_or(0)).sum()
    };
    (sum("input_tokens"), sum("output_tokens"))
}
