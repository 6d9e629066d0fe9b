//! What events say, and that no other is heard.

use serde_json::json;

use super::*;

fn app() -> App {
    App { user: "UBOT".into(), team: "T1".into(), name: "plum".into() }
}

fn read(frame: &str) -> SocketFrame {
    super::read(frame, &app(), &ExtensionId::new("slack").expect("an id"))
}

fn told(event: Value) -> Option<SlackHeard> {
    let frame = json!({"type": "events_api", "envelope_id": "e1", "accepts_response_payload": false,
        "payload": {"type": "event_callback", "event_id": "Ev1", "team_id": "T1", "event": event}});
    match read(&frame.to_string()) {
        SocketFrame::Envelope { id, incoming } if id == "e1" => incoming.map(|incoming| *incoming),
        other => panic!("{other:?}"),
    }
}

fn with(mut event: Value, more: Value) -> Value {
    event.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    event
}

fn direct(more: Value) -> Value {
    let event = json!({"type": "message", "channel": "D1", "channel_type": "im", "user": "U7", "text": "hello", "ts": "10.1"});
    with(event, more)
}

fn mention(more: Value) -> Value {
    let event =
        json!({"type": "app_mention", "channel": "C1", "user": "U7", "text": "<@UBOT> hello", "ts": "10.1"});
    with(event, more)
}

#[test]
fn what_is_said_to_the_bot_is_heard_and_nothing_else() {
    let answer = |text: &str| Some(WriterWish::Answer { text: text.to_owned(), files: Vec::new() });
    let reply = |text: &str| Some(WriterWish::Reply(text.to_owned()));
    for (event, wanted) in [
        (direct(json!({})), answer("hello")),
        (direct(json!({"text": "a &lt; b"})), answer("a < b")),
        (direct(json!({"text": " "})), None),
        (direct(json!({"text": "Stop"})), Some(WriterWish::Stop)),
        (direct(json!({"text": "stop it"})), answer("stop it")),
        (direct(json!({"text": "!new"})), Some(WriterWish::BeginAnew)),
        (direct(json!({"text": "", "subtype": "file_share", "files": [{"id": "F1"}]})), answer("")),
        (direct(json!({"text": "stop", "files": [{"id": "F1"}]})), answer("stop")),
        (direct(json!({"subtype": "message_changed", "hidden": true})), None),
        (direct(json!({"subtype": "message_deleted"})), None),
        (direct(json!({"subtype": "bot_message"})), None),
        (direct(json!({"bot_id": "B7"})), None),
        (direct(json!({"user": "UBOT"})), None),
        (direct(json!({"user": null})), None),
        (direct(json!({"channel_type": "channel", "channel": "C1"})), None),
        (direct(json!({"text": "!new", "thread_ts": "9.9"})), reply("A new thread is a new conversation.")),
        (mention(json!({"text": "<@UBOT> !new"})), reply("A new thread is a new conversation.")),
        (mention(json!({})), answer("hello")),
        (mention(json!({"text": "<@UBOT>"})), None),
        (mention(json!({"text": "<@UBOT> !who"})), Some(WriterWish::KnowWhoTheyAre)),
        (mention(json!({"bot_id": "B7"})), None),
        (json!({"type": "reaction_added", "user": "U7"}), None),
        (json!(7), None),
        (json!({}), None),
    ] {
        assert_eq!(told(event.clone()).map(|told| told.heard.wish), wanted, "{event}");
    }
}

#[test]
fn files_are_heard_with_the_message_that_they_came_with() {
    let files = json!([{"id": "F1", "name": "a.txt", "mode": "hosted", "size": 7},
        {"id": "F2", "mode": "file_access", "file_access": "check_file_info", "created": 0, "user": ""}, {}]);
    let with_files = json!({"subtype": "file_share", "files": files});
    let named = json!({"channel": "C1", "channel_type": "channel", "text": "<@UBOT> look"});
    let file = |id: &str, name: &str| SlackFile { id: id.into(), name: name.into(), shared_with: None };
    for (event, is_aside) in [
        (direct(with_files.clone()), false),
        (mention(json!({"files": with_files["files"]})), false),
        // Told as a message, whether it is told as a mention besides or not.
        (with(direct(named), with_files.clone()), false),
        (
            with(
                direct(json!({"channel": "C1", "channel_type": "group", "thread_ts": "9.9", "text": ""})),
                with_files,
            ),
            true,
        ),
    ] {
        let heard = told(event.clone()).expect("it is heard");
        assert_eq!(heard.files, [file("F1", "a.txt"), file("F2", ""), file("", "")], "{event}");
        assert_eq!(heard.is_aside, is_aside, "{event}");
    }
}

#[test]
fn a_mention_without_its_files_has_those_that_its_text_names() {
    let blocks = json!([{"type": "rich_text", "elements": [{"type": "file", "file_id": "F1"}]}]);
    let shared_with = Some(SharedMessage { channel: "C1".into(), ts: "10.1".into() });
    let named = SlackFile { id: "F1".into(), name: String::new(), shared_with };
    let files = |event: Value| told(event).expect("it is heard").files;
    assert_eq!(files(mention(json!({"blocks": blocks, "text": "<@UBOT>"}))), [named]);
    // What an event says itself goes before, and other events say it.
    let said = files(mention(json!({"blocks": blocks, "files": [{"id": "F9"}]})));
    assert!(said.iter().all(|file| file.id == "F9" && file.shared_with.is_none()), "{said:?}");
    assert_eq!(files(direct(json!({"blocks": blocks}))), []);
}

#[test]
fn a_thread_is_a_conversation_and_a_mention_begins_one() {
    for (event, address, session) in [
        (direct(json!({})), "D1", "slack:person.U7"),
        (direct(json!({"thread_ts": "9.9"})), "D1/9.9", "slack:person.U7:9.9"),
        (mention(json!({})), "C1/10.1", "slack:group.C1:10.1"),
        (mention(json!({"thread_ts": "9.9"})), "C1/9.9", "slack:group.C1:9.9"),
    ] {
        let SlackHeard { heard, is_aside, .. } = told(event).expect("it is heard");
        assert_eq!((heard.address.as_str(), heard.conversation.as_str()), (address, session));
        let place = ChannelPlace::read(address).expect("a place");
        assert_eq!((place.address().as_str(), is_aside), (address, false));
        assert!(SessionId::new(session).is_ok());
    }
    assert_eq!(ChannelPlace::read(""), None);
}

#[test]
fn what_is_said_in_a_thread_without_the_name_of_the_bot_is_said_aside() {
    let aside = |more: Value| {
        let in_thread = json!({"channel": "C1", "channel_type": "channel", "thread_ts": "9.9"});
        told(with(direct(in_thread), more))
    };
    for kind in ["channel", "group"] {
        let SlackHeard { heard, is_aside, .. } = aside(json!({"channel_type": kind})).expect("it is heard");
        assert_eq!((heard.address.as_str(), heard.is_private, is_aside), ("C1/9.9", false, true));
        assert_eq!(
            (heard.external_id.as_str(), heard.conversation.as_str()),
            ("C1:10.1", "slack:group.C1:9.9")
        );
    }
    for more in [
        json!({"thread_ts": null}),
        json!({"text": "and <@UBOT>?"}),
        json!({"text": "and <@UBOT|plum>?"}),
        json!({"text": "<@U8> what do you think"}),
        json!({"bot_id": "B7"}),
        json!({"text": "<@U8> look", "files": [{"id": "F1"}]}),
        json!({"subtype": "message_changed"}),
        json!({"channel_type": "mpim"}),
    ] {
        assert_eq!(aside(more.clone()), None, "{more}");
    }
}

#[test]
fn somebody_of_another_workspace_is_not_who_has_the_same_id_here() {
    let sender = |team: Value| told(mention(json!({"user_team": team}))).expect("heard").heard.sender;
    assert_eq!(sender(Value::Null).id, "U7");
    assert_eq!(sender(json!("T1")).id, "U7");
    assert_eq!(sender(json!("T2")).id, "T2.U7");
    assert!(sender(json!("T2")).is_sound());
}

#[test]
fn a_button_names_its_message_and_is_the_same_when_it_is_told_again() {
    let payload = json!({"type": "block_actions", "user": {"id": "U7", "username": "ann", "name": "ann", "team_id": "T1"},
        "channel": {"id": "C1", "name": "general"}, "container": {"type": "message", "message_ts": "11.2", "channel_id": "C1"},
        "message": {"ts": "11.2", "thread_ts": "10.1"},
        "actions": [{"action_id": "a", "value": "allow 1", "type": "button", "action_ts": "12.3"}]});
    let frame = json!({"type": "interactive", "envelope_id": "e2", "payload": payload});
    let SocketFrame::Envelope { incoming: Some(told), .. } = read(&frame.to_string()) else { panic!() };
    let heard = told.heard;
    assert_eq!((heard.external_id.as_str(), heard.address.as_str()), ("pressed:C1:11.2:U7:12.3", "C1/10.1"));
    assert_eq!(heard.wish, WriterWish::Press { message: "C1/11.2".into(), value: "allow 1".into() });
    assert_eq!((heard.sender.id.as_str(), heard.sender.name.as_deref()), ("U7", Some("ann")));
}

#[test]
fn an_event_is_of_the_workspace_that_hears_it() {
    for (payload, is_of) in [
        (json!({"team_id": "T1"}), true),
        (json!({"team_id": "T2"}), false),
        (json!({"team_id": "T2", "authorizations": [{"team_id": "T3"}, {"team_id": "T1"}]}), true),
        (json!({"team_id": "T2", "context_team_id": "T1"}), true),
        (json!({"team_id": ["T1"], "authorizations": "T1"}), false),
        (json!({}), false),
    ] {
        assert_eq!(super::is_of(&payload, &app()), is_of, "{payload}");
    }
}

#[test]
fn what_the_socket_itself_says_is_told_apart() {
    assert_eq!(read(r#"{"type":"hello","num_connections":1,"debug_info":{}}"#), SocketFrame::Hello);
    assert_eq!(
        read(r#"{"type":"disconnect","reason":"warning","debug_info":{}}"#),
        SocketFrame::Disconnect { reason: "warning".into() }
    );
    assert_eq!(
        read(r#"{"type":"slash_commands","envelope_id":"e3","payload":{}}"#),
        SocketFrame::Envelope { id: "e3".into(), incoming: None }
    );
    for odd in ["", "[]", "7", "{}", r#"{"type":"events_api"}"#, r#"{"type":7}"#, r#"{"type":"new"}"#] {
        assert_eq!(read(odd), SocketFrame::Other, "{odd}");
    }
}
