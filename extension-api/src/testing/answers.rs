//! What an extension asks of the machine and of the daemon: programs, and the control API. No program runs in a test
//! and there is no daemon; each is answered as the test says, by a value or by a function that may also do what the
//! program or the daemon would have done to files.

use serde_json::Value;

use super::{
    FakeHost,
    record::{Prepared, answer},
};
use crate::{
    Fault, FaultCode,
    sdk::guard,
    wire::{
        ControlCall, EmbedTexts, EmbeddedTexts, OutwardRequest, OutwardResponse, ProcessOutput, RunProcess,
    },
};

/// Vectors of texts, as the test makes them.
impl FakeHost {
    /// The texts of each of its requests for vectors.
    pub fn embedded(&self) -> Vec<Vec<String>> {
        self.record().embedded.clone()
    }

    /// Answers each request for vectors from here on, from its texts.
    pub fn answer_embeddings_with(
        &self,
        answer: impl FnMut(&[String]) -> Result<Vec<Vec<f32>>, Fault> + Send + 'static,
    ) -> &Self {
        self.record().answers.embeddings = Some(Box::new(answer));
        self
    }

    pub(super) fn embed(
        &self,
        token: &str,
        EmbedTexts { texts, .. }: EmbedTexts,
    ) -> Result<EmbeddedTexts, Fault> {
        let mut record = self.record();
        record.check(token)?;
        record.embedded.push(texts.clone());
        match &mut record.answers.embeddings {
            Some(answer) => answer(&texts).map(|vectors| EmbeddedTexts { vectors }),
            None => Err(Fault::not_found(
                "the test has no answer for vectors: use `FakeHost::answer_embeddings_with`",
            )),
        }
    }
}

/// Requests that the kernel sends.
impl FakeHost {
    /// Its requests, with their placeholders.
    pub fn sent(&self) -> Vec<OutwardRequest> {
        self.record().sent.clone()
    }

    /// Answers the next request that has no answer yet.
    pub fn answer_sent(&self, answer: Result<OutwardResponse, Fault>) -> &Self {
        self.record().answers.sent.push_back(answer);
        self
    }

    pub(super) fn send(&self, request: OutwardRequest) -> Result<OutwardResponse, Fault> {
        let mut record = self.record();
        record.sent.push(request);
        let missing =
            || Fault::not_found("the test has no answer for a request: use `FakeHost::answer_sent`");
        record.answers.sent.pop_front().ok_or_else(missing)?
    }
}

/// The control API.
impl FakeHost {
    /// Its calls of the control API: methods and parameters.
    pub fn control_calls(&self) -> Vec<(String, Value)> {
        self.record().control.clone()
    }

    /// Answers the next call of a control method that has no answer yet.
    pub fn answer_control(&self, method: &str, answer: Result<Value, Fault>) -> &Self {
        self.answer_control_with(method, |_| answer)
    }

    /// Answers the next call of a control method that has no answer yet, from its parameters. An assertion that fails
    /// in there fails the test when the harness is dropped.
    pub fn answer_control_with(
        &self,
        method: &str,
        answer: impl FnOnce(&Value) -> Result<Value, Fault> + Send + 'static,
    ) -> &Self {
        self.record().answers.control.entry(method.to_owned()).or_default().push_back(Box::new(answer));
        self
    }

    pub(super) fn control(&self, call: ControlCall) -> Result<Value, Fault> {
        let params: Value = serde_json::from_str(call.params.get())?;
        let mut record = self.record();
        record.control.push((call.method.clone(), params.clone()));
        let prepared = answer(&mut record.answers.control, &call.method, "answer_control");
        drop(record);
        self.make(prepared?, &params)
    }

    /// Makes an answer; the record is free meanwhile, since the test's function may read it. A panic must not reach the
    /// table, which would end the process without a word.
    fn make<A, T>(&self, prepared: Prepared<A, T>, asked: &A) -> Result<T, Fault> {
        guard::catch(|| prepared(asked)).unwrap_or_else(|panic| {
            let message = format!("an answer of the test {panic}");
            self.record().failed = Some(message.clone());
            Err(Fault::new(FaultCode::Panicked, message))
        })
    }
}

/// Programs. A test names the program and says how it ends.
///
/// ```
/// use drupe_extension_api::{prelude::*, testing::{FakeHost, Harness, block_on}, wire::RunProcess};
/// use serde_json::json;
/// # struct Clock { host: Host }
/// # impl Extension for Clock {
/// #     async fn initialize(host: Host) -> Result<Self, Fault> { Ok(Clock { host }) }
/// # }
/// # impl ToolProvider for Clock {
/// #     fn tools(&self) -> Vec<Tool<Self>> { vec![Tool::new("clock_date", "The date.", Clock::date)] }
/// # }
/// impl Clock {
///     async fn date(&self, _: NoInput, _: Call) -> Result<String, Fault> {
///         let mut date = RunProcess::new("date", self.host.data_folder());
///         date.spec.args = vec!["-u".into()];
///         Ok(self.host.run_process(&date).await?.stdout)
///     }
/// }
/// # drupe_extension_api::abilities!(Clock: Tool);
///
/// block_on(async {
///     let clock = Harness::<Clock>::start(json!({})).await?;
///     clock.host().answer_process("date", Ok(FakeHost::ended(0, "Sunday", "")));
///     assert_eq!(clock.call("clock_date", json!({})).await, Ok("Sunday".to_owned()));
///     assert_eq!(clock.host().processes()[0].spec.args, ["-u"]);
///     Ok::<_, Fault>(())
/// })
/// # .expect("it works");
/// ```
impl FakeHost {
    /// The programs that it ran, those without an answer too.
    pub fn processes(&self) -> Vec<RunProcess> {
        self.record().processes.clone()
    }

    /// Answers the next run of a program that has no answer yet. A fault stands for one that could not be started.
    pub fn answer_process(&self, program: &str, answer: Result<ProcessOutput, Fault>) -> &Self {
        self.answer_process_with(program, |_| answer)
    }

    /// Answers the next run of a program that has no answer yet, from how it was to run. An assertion that fails in
    /// there fails the test when the harness is dropped.
    pub fn answer_process_with(
        &self,
        program: &str,
        answer: impl FnOnce(&RunProcess) -> Result<ProcessOutput, Fault> + Send + 'static,
    ) -> &Self {
        self.record().answers.processes.entry(program.to_owned()).or_default().push_back(Box::new(answer));
        self
    }

    /// The end of a program with an exit status and what it wrote to its standard output and error streams. Other ends
    /// (a signal, the end of its time) are made with [`ProcessOutput`] itself.
    pub fn ended(status: i32, stdout: &str, stderr: &str) -> ProcessOutput {
        ProcessOutput {
            status: Some(status),
            timed_out: false,
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        }
    }

    /// Gives the prepared answer, cut to what the extension wanted to keep, as a kernel cuts it.
    pub(super) fn run_process(&self, process: RunProcess) -> Result<ProcessOutput, Fault> {
        let mut record = self.record();
        record.processes.push(process.clone());
        let prepared = answer(&mut record.answers.processes, &process.spec.program, "answer_process");
        drop(record);
        let mut output = self.make(prepared?, &process)?;
        let most = usize::try_from(process.max_output).unwrap_or(usize::MAX);
        for stream in [&mut output.stdout, &mut output.stderr] {
            stream.truncate(stream.floor_char_boundary(most));
        }
        Ok(output)
    }
}
