//! Failures, and what they mean.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn check(status: u16, body: &str) -> (FailureClass, bool, String) {
    let now = Timestamp::UNIX_EPOCH;
    let fault = of_response(
        StatusCode::from_u16(status).unwrap(),
        &HeaderMap::new(),
        body.as_bytes(),
        now,
        ("m", &[]),
    )
    .fault;
    (fault.class, fault.retriable, fault.message)
}

#[test]
fn each_status_has_its_class_and_says_whether_to_try_again() {
    for (status, body, class, retriable) in [
        (400, r#"{"error":{"message":"bad schema"}}"#, FailureClass::Model, false),
        (401, r#"{"error":{"message":"no key"}}"#, FailureClass::Auth, false),
        (403, "", FailureClass::Auth, false),
        (402, "", FailureClass::RateLimit, false),
        (404, r#"{"detail":"no such model"}"#, FailureClass::Config, false),
        (307, "", FailureClass::Config, false),
        (408, "", FailureClass::Timeout, true),
        (422, "{}", FailureClass::Model, false),
        (429, r#"{"error":{"message":"slow"}}"#, FailureClass::RateLimit, true),
        (429, r#"{"error":{"message":"pay","code":"insufficient_quota"}}"#, FailureClass::RateLimit, false),
        (500, "<html>", FailureClass::Model, true),
        (503, "", FailureClass::Network, true),
        (529, "", FailureClass::Model, true),
    ] {
        let (found, again, message) = check(status, body);
        assert_eq!((found, again), (class, retriable), "{status} {body}: {message}");
    }
}

#[test]
fn the_providers_words_are_kept_whatever_form_they_have() {
    for (body, part) in [
        (r#"{"error":{"message":"one"}}"#, "one"),
        (r#"{"error":"two"}"#, "two"),
        (r#"{"message":"three","code":1}"#, "three"),
        ("four", "four"),
    ] {
        let (_, _, message) = check(400, body);
        assert!(message.ends_with(part), "{message}");
    }
    for (body, said) in [
        (
            "<!DOCTYPE html><html><head><title>Not\n Found</title>",
            "404 Not Found: a page in HTML, \"Not Found\"",
        ),
        ("<html><body>x", "404 Not Found: a page in HTML"),
        (
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"six\"}}\n\n",
            "404 Not Found: six",
        ),
        ("data: nothing", "404 Not Found: data: nothing"),
    ] {
        assert_eq!(check(404, body).2, said);
    }
}

#[test]
fn the_words_of_each_provider_are_understood() {
    let anthropic = |kind: &str, message: &str| {
        format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#)
    };
    let openai = |code: &str| {
        format!(r#"{{"error":{{"message":"m","type":"invalid_request_error","code":"{code}"}}}}"#)
    };
    let gemini = |status: &str, details: &str| {
        format!(r#"[{{"error":{{"code":0,"message":"m","status":"{status}","details":[{details}]}}}}]"#)
    };
    let day = r#"{"@type":"QuotaFailure","violations":[{"quotaId":"RequestsPerDayPerProject"}]}"#;
    let minute = r#"{"@type":"QuotaFailure","violations":[{"quotaId":"RequestsPerMinutePerProject"}]}"#;
    for (status, body, class, retriable, part) in [
        (
            400,
            anthropic("invalid_request_error", "Your credit balance is too low"),
            FailureClass::RateLimit,
            false,
            "credit",
        ),
        (
            400,
            anthropic("invalid_request_error", "prompt is too long: 9 > 8"),
            FailureClass::Model,
            false,
            "context window",
        ),
        (529, anthropic("overloaded_error", "Overloaded"), FailureClass::Model, true, "529 Overloaded"),
        (400, openai("context_length_exceeded"), FailureClass::Model, false, "context window"),
        (400, openai("content_filter"), FailureClass::Model, false, "filter"),
        (429, openai("insufficient_quota"), FailureClass::RateLimit, false, "quota"),
        (429, openai("rate_limit_exceeded"), FailureClass::RateLimit, true, "m"),
        (400, gemini("INVALID_ARGUMENT", r#"{"reason":"API_KEY_INVALID"}"#), FailureClass::Auth, false, "m"),
        (429, gemini("RESOURCE_EXHAUSTED", day), FailureClass::RateLimit, false, "quota"),
        (429, gemini("RESOURCE_EXHAUSTED", minute), FailureClass::RateLimit, true, "m"),
    ] {
        let (found, again, message) = check(status, &body);
        assert_eq!((found, again), (class, retriable), "{status} {body}: {message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn an_error_within_an_answer_is_judged_by_its_kind() {
    for (error, class, retriable) in [
        (r#"{"type":"overloaded_error","message":"m"}"#, FailureClass::Model, true),
        (r#"{"type":"rate_limit_error","message":"m"}"#, FailureClass::RateLimit, true),
        (r#"{"type":"authentication_error","message":"m"}"#, FailureClass::Auth, false),
        (r#"{"type":"invalid_request_error","message":"m"}"#, FailureClass::Model, false),
        (r#"{"code":"server_error","message":"m"}"#, FailureClass::Model, true),
        (r#"{"code":"insufficient_quota","message":"m"}"#, FailureClass::RateLimit, false),
        (r#"{"code":503,"status":"UNAVAILABLE","message":"m"}"#, FailureClass::Network, true),
        (r#"{"message":"m"}"#, FailureClass::Model, true),
    ] {
        let fault = in_stream(&serde_json::from_str(error).unwrap()).fault;
        assert_eq!((fault.class, fault.retriable), (class, retriable), "{error}");
    }
}

#[test]
fn the_wait_that_a_body_asks_for_counts() {
    let body = r#"{"error":{"code":429,"message":"m","details":[{"retryDelay":"34.5s"}]}}"#;
    let wait = |headers: &HeaderMap| {
        let now = Timestamp::UNIX_EPOCH;
        of_response(StatusCode::TOO_MANY_REQUESTS, headers, body.as_bytes(), now, ("m", &[]))
            .fault
            .retry_after_ms
    };
    assert_eq!(wait(&HeaderMap::new()), Some(34_500));
    let headers = [("retry-after".parse().unwrap(), "2".parse().unwrap())].into_iter().collect();
    assert_eq!(wait(&headers), Some(2_000));
}

#[test]
fn a_model_that_is_not_there_is_told_with_those_that_are_spelled_alike() {
    let known = ["gpt-4.1-mini", "gpt-4.1", "o3"].map(str::to_owned);
    let body = r#"{"error":{"message":"no such model","code":"model_not_found"}}"#;
    let now = Timestamp::UNIX_EPOCH;
    let fault =
        of_response(StatusCode::NOT_FOUND, &HeaderMap::new(), body.as_bytes(), now, ("gpt-4.1-mni", &known))
            .fault;
    assert_eq!(fault.class, FailureClass::Config);
    assert!(fault.message.contains("alike: `gpt-4.1-mini`, `gpt-4.1`): no such"), "{}", fault.message);
}
