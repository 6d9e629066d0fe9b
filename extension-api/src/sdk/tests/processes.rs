//! Programs, with a fake host in place of a machine.

use serde_json::json;

use super::{message, started};
use crate::{
    prelude::*,
    testing::{FakeHost, FakeProcess, block_on},
    wire::{ProcessExit, ProcessOutput, ProcessSpec, RunProcess},
};

struct Runner {
    host: Host,
}

impl Extension for Runner {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        Ok(Runner { host })
    }
}

impl ToolProvider for Runner {
    fn tools(&self) -> Vec<Tool<Self>> {
        vec![
            Tool::new("runner_make", "", Runner::make),
            Tool::new("runner_feed", "", Runner::feed),
            Tool::new("runner_watch", "", Runner::watch),
        ]
    }
}

crate::abilities!(Runner: Tool);

impl Runner {
    async fn make(&self, _: NoInput, _: Call) -> Result<ProcessOutput, Fault> {
        let spec = ProcessSpec {
            args: vec!["all".into()],
            env: [("A".to_owned(), "1".to_owned())].into(),
            timeout_ms: Some(1000),
            ..ProcessSpec::new("make", self.host.data_folder())
        };
        let process = RunProcess { spec, max_output: 4 };
        self.host.run_process(&process).await
    }

    /// What a program answers to two words, and how it ended.
    async fn feed(&self, _: NoInput, _: Call) -> Result<String, Fault> {
        let mut program = self.host.open_process(&ProcessSpec::new("upper", self.host.data_folder())).await?;
        let mut said = Vec::new();
        for word in ["one", "two"] {
            program.write(word.as_bytes()).await?;
            said.extend(program.read().await?.unwrap_or_default());
        }
        program.stdin = None;
        let late = program.write(b"three").await.expect_err("it was closed");
        assert_eq!((program.read().await?, program.read().await?), (None, None), "the end stays the end");
        let err = program.stderr.read_all(100).await?;
        let (exit, again) = (program.wait().await?, program.wait().await?);
        assert_eq!(exit, again);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok(format!("{} {} {:?} {}", text(&said), text(&err), exit.signal, late.message))
    }

    async fn watch(&self, _: NoInput, _: Call) -> Result<Vec<u64>, Fault> {
        let mut numbers = self.host.open::<u64>("numbers", ()).await?;
        let mut seen = Vec::new();
        while let Some(number) = numbers.next().await? {
            seen.push(number);
        }
        Ok(seen)
    }
}

#[test]
fn a_program_is_answered_as_prepared_in_order_and_recorded() {
    let runner = started::<Runner>();
    let make = || block_on(runner.call("runner_make", json!({})));
    runner.host().answer_process("make", Ok(FakeHost::ended(0, "done", "")));
    runner.host().answer_process("make", Err(Fault::denied("no right")));
    let ended = r#"{"status":0,"timed_out":false,"stdout":"done","stderr":""}"#;
    assert_eq!(make(), Ok(ended.to_owned()));
    assert_eq!(message(make(), FaultCode::Denied), "no right");
    assert!(message(make(), FaultCode::NotFound).contains("answer_process"));
    let ran = runner.host().processes();
    assert_eq!(ran.len(), 3);
    assert_eq!((ran[0].spec.args.as_slice(), ran[0].spec.env["A"].as_str()), (&["all".to_owned()][..], "1"));
}

#[test]
fn an_answer_can_do_what_the_program_would_have_done_and_is_cut_to_what_is_kept() {
    let runner = started::<Runner>();
    runner.host().answer_process_with("make", |process| {
        std::fs::write(format!("{}/made", process.spec.directory), "x")?;
        Ok(FakeHost::ended(2, "aäöü", "12345"))
    });
    let output: ProcessOutput = block_on(runner.call("runner_make", json!({})))
        .and_then(|text| Ok(serde_json::from_str(&text)?))
        .expect("it ran");
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (Some(2), "aä", "1234"));
    assert!(runner.data_folder().join("made").exists());
}

#[test]
#[should_panic(expected = "an answer of the test panicked")]
fn an_assertion_that_fails_in_an_answer_fails_the_test_whatever_the_extension_makes_of_it() {
    let runner = started::<Runner>();
    runner
        .host()
        .answer_process_with("make", |process| panic!("`{}` was not expected", process.spec.program));
    let fault = block_on(runner.call("runner_make", json!({}))).expect_err("a fault");
    assert!(fault.message.contains("`make` was not expected"), "{fault}");
}

#[test]
fn a_program_that_is_opened_is_fed_read_and_waited_for() {
    let runner = started::<Runner>();
    let upper = FakeProcess::ending(0)
        .exit(ProcessExit { signal: Some(15), ..ProcessExit::default() })
        .stderr(b"hm")
        .answers(<[u8]>::to_ascii_uppercase);
    runner.host().answer_open_process("upper", Ok(upper));
    let said = block_on(runner.call("runner_feed", json!({})));
    assert_eq!(said, Ok("ONETWO hm Some(15) the standard input of the program was closed".to_owned()));
    assert_eq!((runner.host().open_handles(), runner.host().opened_processes().len()), (0, 1));
    let missing = block_on(runner.call("runner_feed", json!({})));
    assert!(message(missing, FaultCode::NotFound).contains("answer_open_process"));
}

#[test]
fn a_stream_of_the_control_api_gives_its_items_and_ends() {
    let runner = started::<Runner>();
    let numbers: Vec<_> = (0..100).map(|number| json!(number)).collect();
    runner.host().answer_open("numbers", Ok(numbers.clone()));
    let seen = block_on(runner.call("runner_watch", json!({})));
    assert_eq!(seen, Ok(serde_json::Value::from(numbers).to_string()));
    runner.host().answer_open("numbers", Err(Fault::denied("no right")));
    assert_eq!(message(block_on(runner.call("runner_watch", json!({}))), FaultCode::Denied), "no right");
    assert_eq!(runner.host().open_handles(), 0);
}
