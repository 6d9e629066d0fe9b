//! The library with a service that is a few requests, and a kernel that takes everything.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use drupe_extension_api::testing::{Harness, Setup, block_on};
use drupe_extension_api::{prelude::*, wire::SETTLED};
use serde_json::{Value, json};

use super::*;

/// A service that takes letters for messages, one request each.
#[derive(Clone)]
struct Board(Host);

impl ChatService for Board {
    const NAME: &'static str = "Board";
    const LONGEST: usize = 40;

    type Record = ();

    fn counted(address: &str) -> &str {
        address.split('/').next().unwrap_or(address)
    }

    async fn post(&self, address: &str, message: &NewPost<'_>) -> Result<String, SendFailure> {
        let labels: Vec<_> = message.buttons.iter().map(|button| button.label).collect();
        self.ask("post", json!({"at": address, "text": message.text, "buttons": labels})).await
    }

    async fn change(&self, message: &str, text: &str, buttons: &[Button]) -> Result<(), SendFailure> {
        let labels: Vec<_> = buttons.iter().map(|button| button.label).collect();
        self.ask("change", json!({"of": message, "text": text, "buttons": labels})).await.map(drop)
    }
}

impl Board {
    async fn ask(&self, what: &str, of: Value) -> Result<String, SendFailure> {
        let request =
            OutwardRequest::new("POST", format!("https://board.example/{what}")).body(of.to_string());
        let answer = self.0.send(&request).await.map_err(SendFailure::unanswered)?;
        match answer.status {
            200 => Ok(answer.body),
            429 => Err(SendFailure::TooMany { seconds: answer.body.parse().expect("seconds") }),
            other => Err(SendFailure::refused(other, answer.body)),
        }
    }
}

struct Boarding(ChatChannel<Board>);

/// What tests ask beside what the kernel does, by the ids of the extensions.
static CHANNELS: Mutex<BTreeMap<String, ChatChannel<Board>>> = Mutex::new(BTreeMap::new());

impl Extension for Boarding {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let channel = ChatChannel::open(host.clone(), Board(host.clone()), "board.json")?;
        let mut all = CHANNELS.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(host.id().to_string(), channel.clone());
        Ok(Self(channel))
    }
}

impl Channel for Boarding {
    async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        self.0.send(message).await
    }

    async fn stream(&self, part: ChannelStream) -> Result<(), Fault> {
        self.0.stream(part)
    }
}

export!(Boarding: Channel);

struct Scene {
    harness: Harness<Boarding>,
    channel: ChatChannel<Board>,
}

impl Scene {
    async fn of(id: &str) -> Self {
        Self::started(Harness::<Boarding>::setup().id(id), id).await
    }

    async fn started(setup: Setup<Boarding>, id: &str) -> Self {
        let harness = setup.start().await.expect("it starts");
        harness.host().answer_admission(Admission::Known { may_approve: true });
        let all = CHANNELS.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = all.get(id).expect("it was made").clone();
        drop(all);
        Self { harness, channel }
    }

    fn answers(&self, status: u16, body: &str) {
        let answer = OutwardResponse { status, headers: Vec::new(), body: body.to_owned() };
        self.harness.host().answer_sent(Ok(answer));
    }

    fn answers_not(&self, code: FaultCode) {
        self.harness.host().answer_sent(Err(Fault::new(code, "no answer")));
    }

    /// What the service was asked, as `what at-or-of text [buttons]`.
    fn asked(&self) -> Vec<String> {
        let line = |request: OutwardRequest| {
            let of: Value = serde_json::from_str(&request.body.unwrap_or_default()).expect("JSON");
            let what = request.url.rsplit('/').next().unwrap_or_default();
            let place = of["at"].as_str().or(of["of"].as_str()).unwrap_or_default();
            format!("{what} {place} {} {}", of["text"].as_str().unwrap_or_default(), of["buttons"])
        };
        self.harness.host().sent().into_iter().map(line).collect()
    }

    async fn sends(&self, kind: OutboundKind, delivery: &str, text: &str) -> Result<Delivery, Fault> {
        let message = OutboundMessage {
            kind,
            delivery: delivery.to_owned(),
            session: session(),
            address: Some("C1/9".to_owned()),
            text: text.to_owned(),
            file: None,
        };
        self.harness.channel_send(message).await
    }

    async fn streams(&self, part: StreamPart) {
        let part =
            ChannelStream { session: session(), address: Some("C1/9".to_owned()), message: None, part };
        self.harness.channel_stream(part).await.expect("it is taken");
    }

    async fn presses(&self, message: &str, value: &str, address: &str) -> Result<Option<String>, Fault> {
        let wish = WriterWish::Press { message: message.to_owned(), value: value.to_owned() };
        let sender = Sender { id: "7".to_owned(), name: None };
        let heard = HeardMessage {
            address: address.to_owned(),
            conversation: "board:person.7".to_owned(),
            is_private: false,
            sender,
            external_id: "pressed:1".to_owned(),
            agent: None,
            wish,
        };
        self.channel.hear(&heard).await
    }

    /// Waits until the service was asked so often.
    async fn until_asked(&self, often: usize) {
        while self.asked().len() < often {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn session() -> SessionId {
    SessionId::new("board:group.C1:9").expect("an id")
}

const QUESTION: &str = "`allow q1` or `deny q1`?";

fn is_gone(said: Result<Option<String>, Fault>) -> bool {
    said.is_ok_and(|said| said.as_deref() == Some("This is not asked any more."))
}

#[test]
fn a_button_counts_before_it_is_known_which_message_shows_it_and_then_only_below_that_one() {
    block_on(async {
        let scene = Scene::of("pressed").await;
        scene.answers_not(FaultCode::Timeout);
        let fault = scene.sends(OutboundKind::Notice, "q1", QUESTION).await.expect_err("it is in doubt");
        assert_eq!(fault.code, FaultCode::OutcomeUnknown);
        // Neither elsewhere, nor below another question.
        assert!(is_gone(scene.presses("C2/5", "allow q1", "C2").await));
        assert!(is_gone(scene.presses("C1/5", "allow q2", "C1/9").await));
        assert_eq!(scene.presses("C1/5", "allow q1", "C1/9").await, Ok(None));
        assert!(is_gone(scene.presses("C1/6", "allow q1", "C1/9").await));
        let submitted = scene.harness.host().submitted();
        assert_eq!(submitted.len(), 1);
        assert_eq!((submitted[0].text.as_str(), submitted[0].address.as_deref()), ("allow q1", Some("C1/9")));
        assert_eq!(submitted[0].session, session());
        // By now its buttons can be taken away.
        scene.answers(200, "");
        let settled = scene.sends(OutboundKind::Notice, &format!("q1{SETTLED}"), "it runs").await;
        assert_eq!(settled.map(|done| done.remote_id), Ok(Some("C1/5".to_owned())));
        assert_eq!(scene.asked()[1], format!("change C1/5 {QUESTION}\n\nit runs []"));
        assert!(is_gone(scene.presses("C1/5", "allow q1", "C1/9").await));
    });
}

#[test]
fn a_question_is_in_the_file_before_anybody_can_see_it() {
    block_on(async {
        let scene = Scene::of("noted").await;
        let file = scene.harness.data_folder().join("board.json");
        // Nobody is there, so whatever is kept was kept before.
        scene.answers_not(FaultCode::Unavailable);
        scene.sends(OutboundKind::Notice, "q1", QUESTION).await.expect_err("it is not sent");
        let kept = std::fs::read_to_string(&file).expect("it is kept");
        assert!(kept.contains(r#"["q1",{"message":null,"address":"C1/9""#), "{kept}");
        scene.answers(200, "C1/5");
        scene.sends(OutboundKind::Notice, "q1", QUESTION).await.expect("it is sent");
        let kept = std::fs::read_to_string(&file).expect("it is kept");
        assert!(kept.contains(r#"["q1",{"message":"C1/5""#), "{kept}");
        // One whose message nobody knows is settled by a message of its own.
        scene.answers_not(FaultCode::Timeout);
        scene.sends(OutboundKind::Notice, "q2", "`allow q2` `deny q2`").await.expect_err("it is in doubt");
        scene.answers(200, "C1/6");
        let settled = scene.sends(OutboundKind::Notice, &format!("q2{SETTLED}"), "it runs").await;
        assert_eq!(settled.map(|done| done.remote_id), Ok(Some("C1/6".to_owned())));
        assert!(is_gone(scene.presses("C1/7", "allow q2", "C1/9").await));
    });
}

#[test]
fn of_a_long_message_what_went_out_is_not_sent_again() {
    block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let start = async |id| Scene::started(Harness::setup().id(id).data_folder(folder.path()), id).await;
        let scene = start("parts").await;
        let text = format!("{} {}", "a".repeat(38), "b".repeat(38));
        scene.answers(200, "C1/1");
        scene.answers(429, "30");
        let fault = scene.sends(OutboundKind::Answer, "d1", &text).await.expect_err("there is no room");
        assert_eq!(fault.code, FaultCode::Busy);
        // Nothing is even asked for while there is none.
        let fault = scene.sends(OutboundKind::Answer, "d2", "other").await.expect_err("there is no room");
        assert_eq!((fault.code, scene.asked().len()), (FaultCode::Busy, 2));
        drop(scene);
        let again = start("parts-again").await;
        again.answers(200, "C1/2");
        let sent = again.sends(OutboundKind::Answer, "d1", &text).await;
        assert_eq!(sent.map(|done| done.remote_id), Ok(Some("C1/2".to_owned())));
        assert_eq!(again.asked(), [format!("post C1/9 {} []", "b".repeat(38))]);
        again.sends(OutboundKind::Answer, "d1", &text).await.expect("all of it is there");
        assert_eq!(again.asked().len(), 1);
    });
}

#[test]
fn what_the_daemon_does_not_send_is_given_up_at_once_with_its_reason() {
    block_on(async {
        let scene = Scene::of("denied").await;
        let refusal = Fault::denied("no secret is bound to `board.example`").help("name the host");
        scene.harness.host().answer_sent(Err(refusal));
        let fault = scene.sends(OutboundKind::Answer, "d1", "hello").await.expect_err("it is not sent");
        assert_eq!(fault.code, FaultCode::Denied, "it is not tried again");
        assert_eq!(
            fault.to_string(),
            "nothing was sent to Board: no secret is bound to `board.example` (name the host)"
        );
        assert_eq!(scene.asked().len(), 1);
    });
}

#[tokio::test]
async fn an_answer_takes_the_place_of_what_was_shown_of_it_and_its_button_goes() {
    let scene = Scene::of("drafts").await;
    scene.answers(200, "C1/1");
    scene.streams(StreamPart::Begin).await;
    // Somebody quick: nothing is known of a message so far.
    scene.presses("C1/1", "stop", "C1/9").await.expect("it is heard");
    assert_eq!(scene.harness.host().stopped_sessions(), [session()]);
    scene.streams(StreamPart::Delta { text: "so far".to_owned() }).await;
    scene.until_asked(1).await;
    while scene.channel.kept.look(|kept| kept.showing.get(session().as_str()).is_none()) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    scene.presses("C1/1", "stop", "C1/9").await.expect("it is heard");
    assert_eq!(scene.harness.host().stopped_sessions().len(), 2);
    let other = scene.presses("C1/0", "stop", "C1/9").await;
    assert_eq!(other.map(|said| said.unwrap_or_default()), Ok("Nothing runs.".to_owned()));
    // Whether it was written is not known at first.
    scene.answers_not(FaultCode::Timeout);
    scene.answers(200, "");
    let sent = scene.sends(OutboundKind::Answer, "d1", "all of it").await;
    assert_eq!(sent.map(|done| done.remote_id), Ok(Some("C1/1".to_owned())));
    let change = "change C1/1 all of it []";
    assert_eq!(scene.asked(), [r#"post C1/9 so far … ["Stop"]"#, change, change]);
    // The next one is a message of its own, as is one whose message somebody removed.
    scene.answers(200, "C1/2");
    scene.sends(OutboundKind::Answer, "d2", "more").await.expect("it is sent");
    assert_eq!(scene.asked().last().map(String::as_str), Some("post C1/9 more []"));
}

#[test]
fn what_is_refused_is_told_with_the_words_of_the_service() {
    let told = |failure: SendFailure| failure.into_fault("Board");
    let fault = told(SendFailure::refused(413, "too large"));
    assert_eq!((fault.code, fault.message.as_str()), (FaultCode::Denied, "Board refused it: 413 too large"));
    assert_eq!(told(SendFailure::refused("", "too large")).message, "Board refused it: too large");
    assert_eq!(told(SendFailure::refused("gone", "")).message, "Board refused it: gone");
    for (code, becomes) in [
        (FaultCode::Timeout, FaultCode::OutcomeUnknown),
        (FaultCode::Other, FaultCode::OutcomeUnknown),
        (FaultCode::Unavailable, FaultCode::Unavailable),
        (FaultCode::NotConfigured, FaultCode::Unavailable),
        (FaultCode::Denied, FaultCode::Denied),
    ] {
        assert_eq!(told(SendFailure::unanswered(Fault::new(code, "x"))).code, becomes);
    }
}
