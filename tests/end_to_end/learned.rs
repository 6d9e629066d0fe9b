//! What a daemon learns of its models outlives its kernels.

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say},
};

/// Tokens of the model's window: small enough that the size of the request bounds the answer.
const WINDOW: u64 = 20_000;

#[test]
fn the_first_request_after_a_restart_is_bounded_by_what_was_learned_of_the_length_of_tokens() {
    let server = ModelServer::measuring(|_| Say::Text("fine".into()));
    let profile = format!("context_window: {WINDOW}, max_output_tokens: {WINDOW}");
    let daemon = Daemon::start(&format!("{}  profiles: {{local/test: {{{profile}}}}}\n", server.config()));
    let bound = |session: &str| {
        assert_eq!(daemon.turn(session, "hello")["content"], "fine");
        let requests = server.requests();
        let last = requests.last().expect("it was asked");
        let bound = last["max_tokens"].as_u64().or(last["max_completion_tokens"].as_u64());
        i64::try_from(bound.expect("an answer has a bound")).expect("a number of tokens")
    };
    let first = bound("first");
    let learned = (0..8).fold(0, |_, n| bound(&format!("s{n}")));
    assert!(learned > first + 50, "it learns that there is more room: {first}, then {learned}");
    daemon.says(&["restart"]);
    daemon.until_ready();
    let after = bound("after");
    assert!(
        (after - learned).abs() < (learned - first) / 2,
        "{first}, {learned}, and {after} after a restart"
    );
}
