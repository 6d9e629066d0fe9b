use serde_json::{Value, json};

use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn embeds() -> Embeds {
    let settings = EmbedSettings {
        token: "drupe_x".into(),
        secret: SECRET.into(),
        origins: vec!["https://Shop.example.org".into()],
        per_minute: 2,
    };
    Embeds::new(&[("shop".to_owned(), settings)].into()).expect("it is sound")
}

fn signed_with(secret: &[u8], head: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(head), part(claims));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

fn admitted(token: &str) -> Result<String, String> {
    let visitor = embeds().admit(token).expect("it has the form of one");
    visitor.map(|visitor| visitor.token()).map_err(|fault| fault.message)
}

#[test]
fn a_visitor_is_who_the_site_says_for_as_long_as_it_says() {
    let now = now();
    let sign =
        |claims: Value| signed_with(SECRET.as_bytes(), &json!({"alg": "HS256", "typ": "JWT"}), &claims);
    let ann = |exp: f64| json!({"aud": "shop", "sub": "ann", "exp": exp});
    assert_eq!(admitted(&sign(ann(now + 60.0))), Ok("drupe_x/ann".into()));
    assert_eq!(
        admitted(&sign(json!({"aud": ["x", "shop"], "sub": "ann", "exp": now + 60.0}))),
        Ok("drupe_x/ann".into())
    );
    // What does not fit behind a token is a hash, which is another one for another visitor.
    let long = admitted(&sign(json!({"aud": "shop", "sub": "ann@example.org/1", "exp": now + 60.0})));
    assert!(long.is_ok_and(|token| token.len() == "drupe_x/".len() + 24 && !token.contains('@')));
    // Nobody is named like the hash of somebody else.
    let hash = name_of("ann@example.org/1");
    let taken = admitted(&sign(json!({"aud": "shop", "sub": hash, "exp": now + 60.0})));
    assert!(taken.is_ok_and(|token| !token.contains(&hash)));
    for (token, why) in [
        (sign(ann(now - 60.0)), "run out"),
        (sign(ann(now + 25.0 * 3600.0)), "24 hours"),
        (sign(ann(f64::INFINITY)), "lacks"),
        (sign(json!({"aud": "shop", "sub": "ann", "exp": now + 60.0, "nbf": now + 60.0})), "not hold yet"),
        (sign(json!({"aud": "shop", "sub": "", "exp": now + 60.0})), "empty"),
        (sign(json!({"aud": "other", "sub": "ann", "exp": now + 60.0})), "no site"),
        (sign(json!({"sub": "ann", "exp": now + 60.0})), "lacks"),
        (sign(json!({"aud": "shop", "exp": now + 60.0})), "lacks"),
        (sign(json!({"aud": "shop", "sub": "ann"})), "lacks"),
        (
            signed_with(b"another secret that is long enough", &json!({"alg": "HS256"}), &ann(now + 60.0)),
            "no site",
        ),
        (signed_with(SECRET.as_bytes(), &json!({"alg": "none"}), &ann(now + 60.0)), "no site"),
        (signed_with(SECRET.as_bytes(), &json!({"alg": "HS512"}), &ann(now + 60.0)), "no site"),
        (
            signed_with(SECRET.as_bytes(), &json!({"alg": "HS256", "crit": ["x"]}), &ann(now + 60.0)),
            "no site",
        ),
        (
            sign(ann(now + 60.0)).rsplit_once('.').map(|(signed, _)| format!("{signed}.")).expect("parts"),
            "no site",
        ),
        ("a.b.c".to_owned(), "no site"),
    ] {
        assert!(admitted(&token).is_err_and(|said| said.contains(why)), "{why}: {:?}", admitted(&token));
    }
    for other in ["drupe_0123", "drupe_0123/a.b.c", "", "a.b", "a.b.c.d"] {
        assert!(embeds().admit(other).is_none(), "{other}");
    }
    // Nobody is a visitor where there is no site.
    assert!(Embeds::new(&BTreeMap::new()).expect("nothing").admit("a.b.c").is_none());
}

/// The example of RFC 7515, appendix A.1.
#[test]
fn the_example_of_the_standard_is_taken_as_signed() {
    let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    let signed = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
                  eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let mut mac =
        Hmac::<Sha256>::new_from_slice(&URL_SAFE_NO_PAD.decode(key).expect("base64url")).expect("a key");
    mac.update(signed.as_bytes());
    let signature = URL_SAFE_NO_PAD.decode("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk").expect("base64url");
    mac.verify_slice(&signature).expect("it is signed");
}

#[test]
fn a_visitor_sends_so_many_messages_a_minute_and_others_are_not_kept_from_it() {
    let embeds = embeds();
    let embed = embeds.0.get("shop").expect("it is there");
    let visitor = |name: &str| Visitor { embed: Arc::clone(embed), name: name.into(), exp: 0.0 };
    let refused = (0..20).filter(|_| visitor("ann").writes().is_err()).count();
    // A minute may begin meanwhile.
    assert!((16..=18).contains(&refused), "{refused}");
    assert!(visitor("bob").writes().is_ok());
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let sound = EmbedSettings {
        token: "drupe_x".into(),
        secret: SECRET.into(),
        origins: vec!["https://shop.example.org".into()],
        per_minute: 2,
    };
    for (wrong, why) in [
        (EmbedSettings { secret: "short".into(), ..sound.clone() }, "5 bytes"),
        (EmbedSettings { token: "x".into(), ..sound.clone() }, "no named token"),
        (EmbedSettings { token: "drupe_x/ann".into(), ..sound.clone() }, "no named token"),
        (EmbedSettings { origins: Vec::new(), ..sound.clone() }, "no page"),
        (EmbedSettings { origins: vec!["*".into()], ..sound.clone() }, "no origin"),
    ] {
        let refused = Embeds::new(&[("shop".to_owned(), wrong)].into()).err().expect("it is refused");
        assert!(refused.message.contains(why), "{refused}");
    }
    let twice = ["a", "b"].map(|name| (name.to_owned(), sound.clone()));
    let refused = Embeds::new(&twice.into()).err().expect("two sites");
    assert!(refused.message.contains("one token"), "{refused}");
}
