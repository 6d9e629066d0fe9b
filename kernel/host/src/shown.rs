//! Pictures in the reply of a tool, which are not looked through for secrets: their base64 would be read in every way in which
//! somebody may have written one, for seconds, and what is found in it by chance would break it.

use std::ops::Deref;

use drupe_redact::Redactor;
use serde_json::{Value, json};

/// Whether a reply may have pictures.
pub(crate) fn may_show(body: &[u8]) -> bool {
    memchr::memmem::find(body, b"\"images\"").is_some()
}

/// The reply without secrets but for the bytes of its pictures, of which it keeps nothing else; given back where it has none.
pub(crate) fn read<B: Deref<Target = [u8]>>(redactor: &Redactor, body: B) -> Result<Value, B> {
    apart(redactor, &body).ok_or(body)
}

fn apart(redactor: &Redactor, body: &[u8]) -> Option<Value> {
    let mut reply: Value = serde_json::from_slice(body).ok()?;
    let Value::Array(images) = reply.as_object_mut()?.remove("images")? else { return None };
    let rest = serde_json::to_vec(&reply).ok()?;
    let mut clean: Value = serde_json::from_slice(&redactor.json(&rest)).ok()?;
    let bytes = |mut image: Value| match image.get_mut("data").map(Value::take) {
        Some(data @ Value::String(_)) => Some(json!({"data": data})),
        _ => None,
    };
    let images: Vec<Value> = images.into_iter().filter_map(bytes).collect();
    clean.as_object_mut()?.insert("images".to_owned(), images.into());
    Some(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "ghp_Ab1Cd2/Ef3+Gh4Ij5Kl6Mn7Op8Qr9St0";

    fn check(reply: &Value) -> Option<Value> {
        let redactor = Redactor::default();
        redactor.learn([TOKEN]);
        let body = serde_json::to_vec(reply).expect("JSON");
        assert_eq!(may_show(&body), reply.to_string().contains("\"images\""));
        read(&redactor, &body[..]).ok()
    }

    #[test]
    fn the_text_beside_a_picture_loses_secrets_and_the_picture_stays_as_it_is() {
        let reply = json!({"content": format!("it is {TOKEN}"), "images": [
            {"data": TOKEN, "note": TOKEN}, {"note": TOKEN}, {"data": [TOKEN]}, TOKEN,
        ]});
        let expected = json!({"content": "it is [secret]", "images": [{"data": TOKEN}]});
        assert_eq!(check(&reply), Some(expected));
    }

    #[test]
    fn a_reply_without_pictures_is_read_as_any_other() {
        assert_eq!(check(&json!({"content": "it has no \"images\" at all"})), None);
        assert_eq!(check(&json!({"content": TOKEN, "images": TOKEN})), None);
        assert_eq!(check(&json!([TOKEN])), None);
    }

    #[test]
    fn megabytes_of_a_picture_come_through_whole() {
        let data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIA".repeat(140_000);
        let reply = json!({"content": "large", "images": [{"data": data}]});
        assert_eq!(check(&reply), Some(reply));
    }
}
