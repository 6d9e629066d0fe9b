//! What no model, tool or agent should do, done: how it ends, what it spends of which limit, and what it costs the kernel
//! in memory. With `--nocapture` the rows make a table.

mod cycles;
mod window;

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    until,
};

/// Memory that the kernel may keep after each of these once it rests, in KiB: what the journal caches, and pieces that the
/// allocator cannot give back. It is less than one of the long results.
const KEPT_KIB: u64 = 8 * 1024;

/// A daemon with an agent `one` that uses the faulty tools.
struct Scene {
    server: ModelServer,
    daemon: Daemon,
    /// The kernel's process.
    kernel: u64,
    /// Its memory, in KiB.
    before: u64,
}

impl Scene {
    /// `profile` is what is known of the model, `limits` are those of `one`.
    fn run(profile: &str, limits: &str, model: impl Fn(&Value) -> Say + Send + Sync + 'static) -> Self {
        Self::run_in("inproc", profile, limits, model)
    }

    /// The same with the faulty tools in this isolation.
    fn run_in(
        isolation: &str,
        profile: &str,
        limits: &str,
        model: impl Fn(&Value) -> Say + Send + Sync + 'static,
    ) -> Self {
        let server = ModelServer::measuring(move |request| match latest(request).1.as_str() {
            "warm up" => Say::Text("warm".into()),
            _ => model(request),
        });
        let profiles = format!("  profiles: {{local/test: {{{profile}}}}}\n");
        let mut daemon = Daemon::home(&(server.config() + &profiles));
        daemon.plugin_in(isolation, "faulty", "faulty", "scope: agents\n");
        daemon.write(
            "extensions/one/manifest.yaml",
            &format!("id: one\nname: one\ndescription: The agent one.\nagent:\n  model: default\n  instructions: You are one.\n  uses_tools: [faulty]\n  limits: {{{limits}}}\n"),
        );
        daemon.run();
        daemon.turn("warm", "@one warm up");
        let kernel = daemon.until_ready()["kernel_pid"].as_u64().expect("a pid");
        let before = own_memory(kernel).expect("the kernel's memory");
        Self { server, daemon, kernel, before }
    }

    /// One turn of `one`; a line of the table, and a look at the memory.
    fn turn(&self, what: &str, limit: &str) -> Value {
        let turn = self.daemon.turn("s", "@one go");
        let after = self.memory();
        let (status, class) = (turn["status"].as_str().unwrap_or("–"), turn["class"].as_str().unwrap_or("–"));
        let why = turn["error"].as_str().unwrap_or("–");
        println!(
            "| {what} | {status}/{class}: {why} | {} tokens, {} tool calls, {} requests of {limit} | {} | {after} |",
            tokens(&turn),
            turn["spend"]["tool_calls"],
            self.requests(),
            self.before,
        );
        // What was needed for a moment goes when the kernel rests; asking it would keep it from that.
        let kept = || self.memory().saturating_sub(self.before);
        let rests = until("the kernel gives memory back", || (kept() < KEPT_KIB).then_some(()));
        assert!(rests.is_some(), "{what}: {} KiB are kept", kept());
        turn
    }

    /// The memory of the kernel that was measured before: no other one came in its place meanwhile.
    fn memory(&self) -> u64 {
        own_memory(self.kernel).unwrap_or_else(|| {
            let exits = &self.daemon.until_ready()["exits"];
            panic!("the kernel has ended: {exits:#}\n{}", self.daemon.log())
        })
    }

    /// Requests after the first one, which warmed up.
    fn requests(&self) -> usize {
        self.server.requests().len() - 1
    }

    /// How the tool calls that ended went.
    fn outcomes(&self) -> Vec<String> {
        let events = self.daemon.events("s");
        let ended = events.iter().filter(|e| e["kind"] == "interaction.item.completed");
        let tools = ended.filter(|e| e["data"]["item"]["type"] == "tool_call");
        tools.map(|e| e["data"]["outcome"].as_str().unwrap_or("?").to_owned()).collect()
    }
}

/// Memory of a process in KiB that is no file's: pages of the program come and go with what runs, and a build for tests has
/// many of them.
fn own_memory(pid: u64) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // One that has ended and is not buried yet has none.
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok())
}

fn tokens(turn: &Value) -> u64 {
    let usage = &turn["spend"]["usage"];
    usage["input_tokens"].as_u64().unwrap_or(0) + usage["output_tokens"].as_u64().unwrap_or(0)
}

fn answers(request: &Value) -> usize {
    request["messages"].as_array().expect("messages").iter().filter(|m| m["role"] == "assistant").count()
}

fn call(tool: &str, parameters: Value) -> Say {
    Say::Call(vec![(tool.to_owned(), parameters)])
}

#[test]
fn the_same_call_for_ever_is_a_loop() {
    let scene = Scene::run("", "max_turns: 100", |_| call("faulty_echo", json!({"a": 1})));
    let turn = scene.turn("the same call for ever", "5 steps");
    assert_eq!((&turn["class"], scene.requests()), (&json!("loop"), 5), "{turn}");
    let ok = scene.outcomes().iter().filter(|o| *o == "ok").count();
    assert_eq!(ok, 4, "the fifth does not run: {:?}", scene.outcomes());
}

#[test]
fn other_calls_for_ever_end_with_the_steps_or_with_the_tokens() {
    let restless = |request: &Value| call("faulty_echo", json!({"n": answers(request)}));
    let scene = Scene::run("", "max_turns: 40, max_tokens_per_invocation: 10000000", restless);
    let turn = scene.turn("other calls for ever", "40 steps");
    assert_eq!((&turn["class"], scene.requests()), (&json!("budget"), 40), "{turn}");
    assert!(turn["error"].as_str().is_some_and(|e| e.contains("`max_turns`")), "{turn}");

    let scene = Scene::run("", "max_turns: 1000, max_tokens_per_invocation: 50000", restless);
    let turn = scene.turn("other calls for ever", "50000 tokens");
    assert!(turn["error"].as_str().is_some_and(|e| e.contains("`max_tokens_per_invocation`")), "{turn}");
    assert!(tokens(&turn) <= 50_000, "{turn}");
}

/// A model that asks for so many calls at once, and is content with what comes of them.
fn crowd(calls: usize) -> impl Fn(&Value) -> Say + Send + Sync + 'static {
    move |request| match latest(request).0 == "tool" {
        true => Say::Text("done".into()),
        false => Say::Call((0..calls).map(|n| ("faulty_echo".to_owned(), json!({"n": n}))).collect()),
    }
}

#[test]
fn of_many_calls_at_once_as_many_run_as_a_step_may_have() {
    let limits = "max_tool_calls: 10000, max_tokens_per_invocation: 1000000";
    let scene = Scene::run("context_window: 1000000", limits, crowd(250));
    let turn = scene.turn("250 calls at once", "16 calls a step");
    let outcomes = scene.outcomes();
    let ok = outcomes.iter().filter(|o| *o == "ok").count();
    assert_eq!((ok, outcomes.len(), turn["content"].as_str()), (16, 250, Some("done")), "{turn}");
}

#[test]
fn an_answer_of_a_thousand_calls_is_no_answer() {
    let scene = Scene::run("", "max_tool_calls: 10000, max_retries: 1", crowd(1000));
    let turn = scene.turn("1,000 calls at once", "256 calls an answer");
    assert_eq!((&turn["class"], scene.requests()), (&json!("model"), 2), "{turn}");
    assert!(turn["error"].as_str().is_some_and(|e| e.contains("too many tool calls")), "{turn}");
    assert_eq!((scene.outcomes().len(), &turn["spend"]["tool_calls"]), (0, &json!(0)), "nothing ran: {turn}");
}

#[test]
fn an_answer_beyond_its_bound_is_charged_and_ends_what_it_exceeds() {
    let long = || Say::Text("word".repeat(30_000));
    let scene = Scene::run("", "max_tokens_per_invocation: 100000", move |_| long());
    let turn = scene.turn("an answer of 120 kB", "100000 tokens");
    assert_eq!(turn["content"].as_str().map(str::len), Some(120_000), "it is whole");
    assert!(tokens(&turn) > 12_000, "{}", tokens(&turn));

    // A server that does not keep to the bound of the request: what it sent is charged, and nothing more is asked.
    let scene = Scene::run("", "max_tokens_per_invocation: 5500", move |request| match answers(request) {
        0 => Say::Call(vec![("faulty_echo".into(), json!({"text": "word".repeat(30_000)}))]),
        _ => long(),
    });
    let turn = scene.turn("a call of 120 kB", "5500 tokens");
    assert_eq!((&turn["class"], scene.requests()), (&json!("budget"), 1), "{turn}");
    let bound = scene.server.requests()[1]["max_tokens"].as_u64().expect("the request bounds the answer");
    assert!(bound <= 5500, "{bound}");
}

/// What a tool gives here: four times what is kept of it, and twice what a process may send. A build for tests takes seconds to write down a hundred of these in one piece, and
/// a machine that is busy takes them for a kernel that hangs.
const LONG: usize = 32 * 1024 * 1024;

/// A tool that gives so much, three times.
fn check_long_result(isolation: &str, bytes: usize, says: &str) {
    let scene = Scene::run_in(isolation, "", "", move |request| match latest(request).0 == "tool" {
        true => Say::Text("done".into()),
        false => call("faulty_big", json!({"bytes": bytes})),
    });
    let what = |time: usize| format!("a result of {} MiB, {isolation}, time {time}", bytes >> 20);
    let turn = scene.turn(&what(1), "12288 bytes shown");
    assert_eq!(turn["content"], "done", "{turn}");
    let shown = latest(&scene.server.requests()[2]).1;
    println!("shown of it: {} bytes, at the end: {}", shown.len(), &shown[shown.len().saturating_sub(200)..]);
    assert!(shown.len() <= 12 * 1024 && shown.contains(says), "{isolation}: {shown}");
    for time in 2..=3 {
        scene.turn(&what(time), "12288 bytes shown");
    }
}

#[test]
fn of_a_result_of_many_megabytes_a_part_is_kept_and_a_smaller_one_shown() {
    check_long_result("inproc", LONG / 2, "only 8388608 of 16777216 bytes were kept");
}

#[test]
fn a_result_of_many_megabytes_from_another_process_is_refused() {
    check_long_result("process", LONG, "cannot be sent: it is 33554459 bytes long");
}

#[test]
fn of_five_hundred_forged_names_none_runs() {
    let limits = "max_tool_calls: 10000, max_tool_calls_per_step: 256, max_tokens_per_invocation: 1000000";
    let scene = Scene::run("context_window: 1000000", limits, |request| {
        let (at, names) = (answers(request), forged());
        match names.chunks(250).nth(at) {
            Some(names) => Say::Call(
                names
                    .iter()
                    .map(|n| {
                        (n.clone(), json!({"path": "stolen.txt", "content": "x", "key": "k", "value": "v"}))
                    })
                    .collect(),
            ),
            None => Say::Text("done".into()),
        }
    });
    let turn = scene.turn("500 forged names", "no dispatch");
    let outcomes = scene.outcomes();
    assert_eq!((outcomes.len(), outcomes.iter().filter(|o| *o == "ok").count()), (500, 0), "{turn}");
    let refused = turn["transcript"].as_array().expect("a list").iter().filter(|e| e["role"] == "tool");
    assert!(refused.clone().all(|e| e["status"] == "refused") && refused.count() == 500, "{turn}");
    assert!(!scene.daemon.path().join("workspace/stolen.txt").exists());
}

/// Names of tools that exist and that `one` does not have, and what comes close to them.
fn forged() -> Vec<String> {
    let real =
        ["files_write", "files_read", "kv_set", "kv_get", "agent_one", "agent_builder_agent", "load_skill"];
    let near: [fn(&str, usize) -> String; 8] = [
        |name, n| if n == 0 { name.to_owned() } else { format!("{name}{n}") },
        |name, n| format!("{}{n}", name.to_uppercase()),
        |name, n| format!("{name}{}", "\u{200b}".repeat(n + 1)),
        |name, n| format!("functions.{n}.{name}"),
        |name, n| format!("{}/{name}", "..".repeat(n + 1)),
        |name, n| format!("{name}{}", " ".repeat(n + 1)),
        |name, n| format!("{}{n}", name.replace('e', "е")),
        |name, n| format!("faulty_echo\0{n}{name}"),
    ];
    let mut names = Vec::new();
    for n in 0.. {
        for name in real {
            names.extend(near.iter().map(|forge| forge(name, n)));
        }
        if names.len() >= 500 {
            break;
        }
    }
    names.truncate(500);
    names
}
