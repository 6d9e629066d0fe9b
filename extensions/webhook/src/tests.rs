//! What is refused before anything is sent, and what statuses mean. How messages go out is tried with a whole daemon.

use drupe_extension_api::{
    serde_json::json,
    testing::{Harness, block_on},
};
use reqwest::StatusCode;

use super::*;
use crate::post::{Answer, read};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn to(address: Option<&str>) -> OutboundMessage {
    OutboundMessage {
        kind: OutboundKind::Answer,
        delivery: "1".into(),
        session: "main".parse().expect("a session"),
        address: address.map(Into::into),
        text: "hello".into(),
    }
}

#[test]
fn a_status_says_whether_a_message_comes_again() {
    for (status, answer) in [
        (200, Answer::Taken),
        (204, Answer::Taken),
        (302, Answer::Refused),
        (400, Answer::Refused),
        (401, Answer::Refused),
        (404, Answer::Refused),
        (408, Answer::Failed),
        (410, Answer::Gone),
        (429, Answer::Overloaded),
        (500, Answer::Failed),
        (502, Answer::Overloaded),
        (503, Answer::Overloaded),
        (599, Answer::Failed),
    ] {
        assert_eq!(read(StatusCode::from_u16(status).expect("a status")), answer, "{status}");
    }
}

#[test]
fn what_leads_nowhere_is_refused_with_the_key_that_says_it() {
    let start = |url: &str, secret: &str| {
        let config = json!({"endpoints": {"builds": {"url": url, "secret": secret}}});
        block_on(Harness::<Webhook>::start(config)).map(drop).map_err(|fault| fault.to_string())
    };
    assert_eq!(start("https://hooks.example/", SECRET), Ok(()));
    let told = start("http://hooks.example/", SECRET).expect_err("nobody may read along");
    assert!(
        told.contains("`extensions.webhook.endpoints.builds.url`") && told.contains("https://"),
        "{told}"
    );
    let told = start("https://hooks.example/", "hunter2").expect_err("it is guessed");
    assert!(told.contains("whsec_") && !told.contains("hunter2"), "{told}");
}

#[test]
fn an_address_names_an_endpoint_that_is_there() {
    block_on(async {
        let one = json!({"url": "https://hooks.example/", "secret": SECRET});
        let none = Harness::<Webhook>::start(json!({"endpoints": {}})).await.expect("it starts");
        let two = json!({"endpoints": {"a": one, "b": one}});
        let two = Harness::<Webhook>::start(two).await.expect("it starts");
        for (harness, address) in [(&none, None), (&two, None), (&two, Some("c"))] {
            let fault = harness.channel_send(to(address)).await.expect_err("it goes nowhere");
            assert_eq!(fault.code, FaultCode::Denied, "{fault}");
        }
    });
}
