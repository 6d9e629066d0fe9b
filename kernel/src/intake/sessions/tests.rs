//! The queues of sessions, through one door: a script of what happens, and what each step says.

use drupe_extension_api::wire::Submit;
use drupe_journal::{Inbound, SessionState};
use jiff::Timestamp;

use super::*;

/// The turn `a1` is one of session `a`; words after it say how its message wants to be taken, and what it says.
fn turn(words: &str, origin: Origin) -> QueuedTurn {
    let mut words = words.split(' ');
    let id = words.next().unwrap_or_default();
    let mut ask = Submit::new(session(&id[..1]), id, "hello");
    for word in words {
        match word {
            "steer" => ask.queue = Some(QueueMode::Steer),
            "interrupt" => ask.queue = Some(QueueMode::Interrupt),
            text if text.starts_with('@') => ask.text = format!("{text} do it"),
            channel => ask.channel = channel.to_owned(),
        }
    }
    QueuedTurn {
        turn: id.parse().expect("an id"),
        inbound: Inbound::new(ask, origin),
        accepted: Timestamp::UNIX_EPOCH,
        started: false,
        root: None,
        correlation: None,
        state: SessionState::default(),
        earlier_turns: 0,
        cancelled: None,
    }
}

fn session(id: &str) -> SessionId {
    id.parse().expect("an id")
}

/// Plays a script: `push` gives the session that needs somebody to work off its queue, `next` the turn that runs.
fn check(script: &[(&str, &str)]) {
    let sessions = Sessions::default();
    let mut runs: HashMap<String, Within> = HashMap::new();
    for (number, (step, says)) in script.iter().enumerate() {
        let (verb, about) = step.split_once(' ').unwrap_or((step, ""));
        let said = match verb {
            "push" => sessions.push(turn(about, Origin::OPERATOR)).map_or(String::new(), |id| id.to_string()),
            "open" => sessions.open().iter().map(SessionId::as_str).collect::<Vec<_>>().join(" "),
            "next" | "last" => {
                let mut forgotten = false;
                match sessions.next(&session(about), verb == "next", || forgotten = true) {
                    Some((queued, within)) => {
                        runs.insert(about.to_owned(), within);
                        let why = queued.cancelled.map(|why| format!(" {why}")).unwrap_or_default();
                        format!("{}{why}", queued.turn)
                    }
                    None => format!("none{}", if forgotten { ", forgotten" } else { "" }),
                }
            }
            "stop" => match sessions.stop(&about.parse().expect("an id")) {
                Stopped::Waiting(queued) => format!("waited {}", queued.turn),
                Stopped::TakenIn(by) => format!("a part of {by}"),
                other => format!("{other:?}").to_lowercase(),
            },
            "interrupt" => {
                let turns: Vec<TurnId> = about.split(' ').map(|id| id.parse().expect("an id")).collect();
                sessions.interrupt(&session(&about[..1]), &turns);
                String::new()
            }
            // The loop takes its message in.
            "takes" => {
                let (of, taken) = about.split_once(' ').expect("a session and a turn");
                runs[of].steering.remove(&taken.parse().expect("an id")).to_string()
            }
            "cancelled" => runs[about].cancel.is_cancelled().to_string(),
            "ended" => {
                let given = sessions.ended(&session(about));
                for back in given.iter().rev() {
                    sessions.give_back(&session(about), turn(back.as_str(), Origin::OPERATOR));
                }
                given.iter().map(TurnId::as_str).collect::<Vec<_>>().join(" ")
            }
            "of" => sessions.of(&session(about)).iter().map(TurnId::as_str).collect::<Vec<_>>().join(" "),
            other => panic!("`{other}` is no step"),
        };
        assert_eq!(said, *says, "step {number}, `{step}`, of {script:?}");
    }
}

#[test]
fn turns_of_a_session_run_one_after_another_in_their_order_and_none_before_the_extensions_work() {
    check(&[
        ("push a1", ""),
        ("push a2", ""),
        ("open", "a"),
        ("push b1", "b"),
        ("next a", "a1"),
        ("push a3", ""),
        ("push a2", ""),
        ("of a", "a1 a2 a3"),
        ("next b", "b1"),
        ("next a", "a2"),
        ("next a", "a3"),
        ("next a", "none, forgotten"),
        ("push a4", "a"),
    ]);
}

#[test]
fn what_waits_when_the_kernel_ends_is_left_to_the_next_one() {
    check(&[
        ("open", ""),
        ("push a1", "a"),
        ("push a2", ""),
        ("next a", "a1"),
        ("last a", "none, forgotten"),
    ]);
}

#[test]
fn a_message_that_steers_is_taken_in_or_answered_next_before_those_that_wait() {
    check(&[
        ("open", ""),
        ("push a1", "a"),
        ("next a", "a1"),
        ("push a2", ""),
        ("push a3 steer", ""),
        ("push a4 steer", ""),
        ("push a5 steer", ""),
        ("of a", "a1 a3 a4 a5 a2"),
        ("ended a", "a3 a4 a5"),
        ("push a6 steer", ""),
        ("next a", "a3"),
        ("next a", "a4"),
        ("next a", "a5"),
        ("next a", "a2"),
        ("next a", "a6"),
    ]);
}

#[test]
fn a_message_that_wants_its_own_answer_or_has_it_go_elsewhere_steers_nothing() {
    for other in ["a2 steer @poet", "a2 steer mail", "a2 interrupt", "a2"] {
        let pushed = format!("push {other}");
        check(&[
            ("open", ""),
            ("push a1", "a"),
            ("next a", "a1"),
            (&pushed, ""),
            ("takes a a2", "false"),
            ("next a", "a2"),
        ]);
    }
}

#[test]
fn a_turn_is_stopped_wherever_it_is() {
    check(&[
        ("open", ""),
        ("push a1", "a"),
        ("next a", "a1"),
        ("push a2", ""),
        ("push a3 steer", ""),
        ("push a4 steer", ""),
        ("stop a2", "waited a2"),
        ("stop a3", "withdrawn"),
        ("takes a a4", "true"),
        ("stop a4", "a part of a1"),
        ("cancelled a", "false"),
        ("stop a1", "running"),
        ("cancelled a", "true"),
        ("stop a9", "neither"),
    ]);
}

#[test]
fn an_interrupted_turn_ends_where_it_runs_and_does_not_begin_where_it_waits() {
    check(&[
        ("open", ""),
        ("push a1", "a"),
        ("push a2", ""),
        ("next a", "a1"),
        ("interrupt a1 a2", ""),
        ("push a3 interrupt", ""),
        ("cancelled a", "true"),
        ("next a", "a2 interrupted"),
        ("next a", "a3"),
    ]);
}

#[test]
fn one_extension_takes_its_share_of_the_places_and_leaves_those_of_others() {
    let (sessions, mail) = (Sessions::default(), Origin::Extension("mail".parse().expect("an id")));
    // Those that come at the same time count each other before they are queued.
    let coming: Vec<_> =
        (0..MOST_OF_ONE).map(|_| sessions.check_room(&mail).expect("there is room")).collect();
    assert!(sessions.check_room(&mail).is_err());
    drop(coming);
    for n in 0..MOST_OF_ONE {
        assert!(sessions.check_room(&mail).is_ok(), "{n}");
        drop(sessions.push(turn(&format!("a{n}"), mail.clone())));
    }
    let refused = sessions.check_room(&mail).expect_err("it has its share");
    assert!(refused.code == FaultCode::Busy && refused.message.contains("extension `mail`"), "{refused}");
    assert!(sessions.check_room(&Origin::OPERATOR).is_ok());
    assert!(sessions.check_room(&Origin::Client { token: Some("mail".into()) }).is_ok());
}

#[test]
fn a_turn_that_waits_for_room_ends_when_its_extension_is_gone_and_one_that_has_begun_goes_on() {
    let sessions = Sessions::default();
    for (id, begun, gone, ends) in
        [("a1", false, true, true), ("b1", true, true, false), ("c1", false, false, false)]
    {
        let mail = Origin::Extension("mail".parse().expect("an id"));
        drop(sessions.push(turn(id, mail)));
        let (_, within) = sessions.next(&session(&id[..1]), true, || {}).expect("it waits");
        if begun {
            sessions.begin(&session(&id[..1]));
        }
        sessions.give_up(|extension| gone && extension == "mail");
        assert_eq!(within.cancel.is_cancelled(), ends, "{id}");
    }
}
