//! Programs, with a fake host in place of a machine.

use serde_json::json;

use super::{message, started};
use crate::{
    prelude::*,
    testing::{FakeHost, block_on},
    wire::{ProcessOutput, RunProcess},
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
        vec![Tool::new("runner_make", "", Runner::make)]
    }
}

crate::abilities!(Runner: Tool);

impl Runner {
    async fn make(&self, _: NoInput, _: Call) -> Result<ProcessOutput, Fault> {
        let process = RunProcess {
            args: vec!["all".into()],
            env: [("A".to_owned(), "1".to_owned())].into(),
            timeout_ms: 1000,
            max_output: 4,
            ..RunProcess::new("make", self.host.data_folder())
        };
        self.host.run_process(&process).await
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
    assert_eq!((ran[0].args.as_slice(), ran[0].env["A"].as_str()), (&["all".to_owned()][..], "1"));
}

#[test]
fn an_answer_can_do_what_the_program_would_have_done_and_is_cut_to_what_is_kept() {
    let runner = started::<Runner>();
    runner.host().answer_process_with("make", |process| {
        std::fs::write(format!("{}/made", process.directory), "x")?;
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
    runner.host().answer_process_with("make", |process| panic!("`{}` was not expected", process.program));
    let fault = block_on(runner.call("runner_make", json!({}))).expect_err("a fault");
    assert!(fault.message.contains("`make` was not expected"), "{fault}");
}
