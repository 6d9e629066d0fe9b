use serde_json::json;

use super::*;

const TOKEN: &str = "ghp_Ab1Cd2/Ef3+Gh4Ij5Kl6Mn7Op8Qr9St0";

fn knowing(secrets: &[&str]) -> Redactor {
    let redactor = Redactor::default();
    redactor.learn(secrets.iter().copied());
    redactor
}

#[test]
fn json_stays_json_and_loses_secrets_in_texts_and_keys() {
    let redactor = knowing(&[TOKEN, "q\"uoted1234567"]);
    let body = json!({
        "text": format!("it is {TOKEN}."),
        "list": [{TOKEN: 1}, "q\"uoted1234567", 7, null],
        "plain": "nothing",
    });
    let shown = redactor.json(body.to_string().as_bytes()).into_owned();
    let shown: serde_json::Value = serde_json::from_slice(&shown).expect("JSON");
    let expected = json!({"text": "it is [secret].", "list": [{"[secret]": 1}, "[secret]", 7, null], "plain": "nothing"});
    assert_eq!(shown, expected);
    // What has none is not written anew: not a number of it changes.
    let exact = br#"{"a": 1.10, "b": 100000000000000000000000000000}"#;
    assert_eq!(redactor.json(exact), Cow::Borrowed(&exact[..]));
    let torn = format!("{{\"text\": \"{TOKEN}");
    assert_eq!(&*redactor.json(torn.as_bytes()), b"{\"text\": \"[secret]");
}

#[test]
fn a_secret_in_pieces_is_hidden_wherever_it_is_cut() {
    let redactor = knowing(&[TOKEN]);
    for written in std::iter::once(TOKEN.to_owned()).chain(pieces::encodings(TOKEN)) {
        let text = format!("the token is {written}, and so on");
        for size in [1, 2, 3, 7, 11, 12, 13, 40] {
            let mut pieces = redactor.pieces();
            let mut shown = String::new();
            for piece in text.as_bytes().chunks(size) {
                shown += &pieces.push(std::str::from_utf8(piece).expect("ASCII"));
            }
            shown += &pieces.finish();
            assert_eq!(shown, "the token is [secret], and so on", "in pieces of {size}");
        }
    }
}

#[test]
fn what_holds_no_secret_comes_through_piece_by_piece() {
    let redactor = knowing(&[TOKEN]);
    let mut pieces = redactor.pieces();
    let (mut shown, mut said) = (String::new(), String::new());
    for word in
        "süß 🍒, und ghp ist kurz: ghp_Ab1 ist nur der Anfang, Cd2/Ef3+ die Mitte".split_inclusive(' ')
    {
        said += word;
        shown += &pieces.push(word);
        assert!(said.starts_with(&shown) && said.len() - shown.len() < 20, "{shown} of {said}");
    }
    assert_eq!(shown + &pieces.finish(), said);
    assert_eq!(Redactor::default().pieces().push(TOKEN), TOKEN, "without secrets nothing is looked for");
}

#[test]
fn what_is_written_to_a_log_holds_no_secret() {
    use std::io::Write as _;
    let mut log = Vec::new();
    knowing(&[TOKEN]).writer(&mut log).write_all(format!("it is {TOKEN}\n").as_bytes()).expect("a log");
    assert_eq!(String::from_utf8_lossy(&log), "it is [secret]\n");
}

#[test]
fn a_configuration_tells_its_secrets_by_their_names() {
    let redactor = Redactor::default();
    let given = json!({"servers": {"github": {"url": "https://example.com", "env": {"GITHUB_TOKEN": TOKEN, "REGION": "eu-central-1"},
        "headers": {"Authorization": "Bearer abcdef123456"}}}, "hooks": {"secret": ["older-secret", "newer-secret"]}});
    redactor.learn_named(given.as_object().expect("a map"));
    let told = format!(
        "https://example.com in eu-central-1 with {TOKEN}, Bearer abcdef123456, older-secret and newer-secret"
    );
    let shown = redactor.text(&told).into_owned();
    assert_eq!(shown, "https://example.com in eu-central-1 with [secret], [secret], [secret] and [secret]");
}

#[test]
fn secrets_are_learned_while_it_stands_and_never_forgotten() {
    let redactor = Redactor::default();
    let other = redactor.clone();
    assert_eq!(other.text(TOKEN), TOKEN);
    redactor.learn([TOKEN, " \n", "short"]);
    redactor.learn(["another-secret-1"]);
    assert_eq!(other.text(&format!("short {TOKEN} another-secret-1")), "short [secret] [secret]");
    assert_eq!(format!("{other:?}"), "Redactor(2 secrets)");
}
