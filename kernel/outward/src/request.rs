//! Where a request goes, and the request with what is filled in. Pure.

use drupe_extension_api::{Fault, FaultCode, wire::OutwardRequest};
use reqwest::{
    Method, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use crate::{
    LONGEST_HEAD, LONGEST_REQUEST, MOST_HEADERS,
    fill::{BoundValue, Within, filled},
};

/// What may be asked for. `TRACE` would give the request back, and `CONNECT` is none.
const METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Headers that say where a request goes, how its bytes are read, and which part of an answer comes: by the first a server of many hosts
/// could be made to hand it to another, by the last a server that repeats a secret could be asked for it in parts too short to be found.
const OURS: [&str; 10] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-authorization",
    "range",
];

/// An address that a request may go to, if it is one.
pub(crate) fn address(text: &str) -> Result<Url, Fault> {
    let url =
        Url::parse(text.trim()).map_err(|error| Fault::invalid(format!("`url` is no address: {error}")))?;
    let host = url.host_str().unwrap_or_default();
    let loopback = host == "localhost"
        || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match url.scheme() {
        "https" => {}
        "http" if loopback => {}
        _ => {
            let message = "`url` begins with https://, or with http:// where it leads to this machine";
            return Err(Fault::invalid(message));
        }
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Fault::invalid("`url` has a user before its host").help("write a header in place of it"));
    }
    let head = text.find("://").and_then(|at| text[at + 3..].find('/').map(|end| &text[..at + 3 + end]));
    if head.unwrap_or(text.split(['?', '#']).next().unwrap_or_default()).contains("${") {
        let message = "no secret is filled in before the path, and this names one there";
        return Err(Fault::invalid(message));
    }
    Ok(url)
}

/// The host that an address leads to, as `hosts` of a bound secret has it.
pub fn host_of(text: &str) -> Option<String> {
    place(&address(text).ok()?)
}

fn place(url: &Url) -> Option<String> {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}{port}", url.host_str()?))
}

/// The path of an address as it is written, for what is filled in. None where the address is written so that it does not begin as it is
/// read: whoever fills something in must know what is the path of it.
fn written_path<'a>(text: &'a str, url: &Url) -> Option<&'a str> {
    let rest = text.strip_prefix(&format!("{}://{}", url.scheme(), place(url)?))?;
    rest.split(['?', '#'])
        .next()
        .filter(|path| path.starts_with('/') && !path.contains(['\\', '\t', '\n', '\r']))
}

/// The host of an address, and whether `bound` names it: as a host alone it stands for the usual port.
pub(crate) fn leads_to(url: &Url, bound: &str) -> bool {
    let Some(host) = url.host_str() else { return false };
    match (url.port(), bound.strip_prefix(host)) {
        (None, Some("")) => true,
        (_, Some(port)) => {
            port.strip_prefix(':').and_then(|port| port.parse().ok()) == url.port_or_known_default()
        }
        _ => false,
    }
}

/// A request as it goes out.
pub(crate) struct FilledRequest {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<String>,
}

impl FilledRequest {
    /// Fills `values` in, which are bound to the host of `url`.
    pub(crate) fn of(
        request: &OutwardRequest,
        mut url: Url,
        values: &[BoundValue<'_>],
    ) -> Result<Self, Fault> {
        let method =
            METHODS.into_iter().find(|method| method.as_str() == request.method).ok_or_else(|| {
                Fault::invalid(format!("`{}` is no method", shown(&request.method)))
                    .help("GET, HEAD, POST, PUT, PATCH and DELETE are")
            })?;
        if !request.form.is_empty() {
            let has = |name: &str| request.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
            if request.body.is_some() || has("content-type") {
                let message = "a request with a form has neither a body beside it nor a `content-type`";
                return Err(Fault::invalid(message));
            }
        }
        if request.headers.len() > MOST_HEADERS {
            return Err(Fault::invalid(format!("a request has at most {MOST_HEADERS} headers")));
        }
        let mut headers = HeaderMap::new();
        let mut head = url.as_str().len();
        for (name, text) in &request.headers {
            let wrong = |what: &str| Fault::invalid(format!("the header `{}` {what}", shown(name)));
            let named = HeaderName::try_from(name).map_err(|_| wrong("has no name that headers have"))?;
            if OURS.contains(&named.as_str()) {
                return Err(wrong("is the daemon's to write"));
            }
            // The value may hold the secret: nothing is said of it.
            let mut value = HeaderValue::try_from(filled(text, Within::Plain, values, LONGEST_HEAD)?)
                .map_err(|_| wrong("has a value that no header can have"))?;
            value.set_sensitive(true);
            head += name.len() + value.len();
            headers.append(named, value);
        }
        if request.fill_path {
            let path = written_path(request.url.trim(), &url).ok_or_else(|| {
                Fault::invalid("`url` is not written as it is read, so it is not known what its path is")
                    .help("write the scheme and the host in small letters, and no port that is the usual one")
            })?;
            let path = filled(path, Within::Segment, values, LONGEST_HEAD)?;
            head += path.len();
            url.set_path(&path);
        } else if request.url.split(['?', '#']).next().is_some_and(|ahead| ahead.contains("${")) {
            let message = "the request does not say that its path is to be filled in, and names a secret before the query";
            return Err(Fault::invalid(message));
        }
        if let (true, Some(query)) = (request.fill_query, url.query()) {
            let query = filled(query, Within::Form, values, LONGEST_HEAD)?;
            head += query.len();
            url.set_query(Some(&query));
        }
        url.set_fragment(None);
        if head > LONGEST_HEAD {
            let message = format!("the address and the headers are longer than {LONGEST_HEAD} bytes");
            return Err(Fault::invalid(message));
        }
        let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok());
        let within = Within::body(kind);
        let body = match (&request.body, request.fill_body) {
            (Some(body), true) => Some(filled(body, within, values, LONGEST_REQUEST)?),
            (body, _) => body.clone(),
        };
        if body.as_ref().is_some_and(|body| body.len() > LONGEST_REQUEST) {
            return Err(Fault::invalid(format!("the body is longer than {LONGEST_REQUEST} bytes")));
        }
        Ok(Self { method, url, headers, body })
    }
}

/// Why nothing is sent to a host.
pub(crate) fn not_bound(url: &Url) -> Fault {
    let host = place(url).unwrap_or_default();
    Fault::new(FaultCode::Denied, format!("no secret is bound to `{host}`, so nothing is sent there"))
        .help("name the host under `bound_secrets` of the manifest")
}

fn shown(text: &str) -> String {
    text.escape_debug().take(80).collect()
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::wire::FormPart;

    use super::*;

    const KEY: [BoundValue<'_>; 1] = [BoundValue { name: "KEY", value: "12345678 & more" }];

    fn request(url: &str) -> OutwardRequest {
        OutwardRequest::new("POST", url)
    }

    fn made(request: &OutwardRequest, values: &[BoundValue<'_>]) -> Result<FilledRequest, Fault> {
        FilledRequest::of(request, address(&request.url)?, values)
    }

    #[test]
    fn only_addresses_that_nobody_on_the_way_reads_are_taken() {
        for good in [
            "https://api.example.org/v1?key=${KEY}",
            "http://127.0.0.1:8080/",
            "http://[::1]/",
            "http://localhost:1/x",
        ] {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "api.example.org",
            "http://api.example.org/",
            "http://127.0.0.1.example.org/",
            "ftp://127.0.0.1/",
            "https://api.example.org@evil.example/",
            "https://:pw@api.example.org/",
            "https://${KEY}@api.example.org/",
            "https://api.example.org:${KEY}/",
            "https://[::1/",
            "https:///",
            "http://[::2]/",
            "http://localhost./",
            "http://localhost.example.org/",
            "https://${KEY}.example.org/",
            "https://${KEY}.example.org",
            "https://api.example.org:${KEY}",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_host_is_the_one_that_is_bound_with_its_port() {
        for (url, bound, leads) in [
            ("https://api.example.org/x", "api.example.org", true),
            ("https://API.example.org/x", "api.example.org", true),
            ("https://api.example.org:443/x", "api.example.org", true),
            ("https://api.example.org/x", "api.example.org:443", true),
            ("https://api.example.org:8443/x", "api.example.org", false),
            ("https://api.example.org:8443/x", "api.example.org:8443", true),
            ("https://api.example.org./x", "api.example.org", false),
            ("https://api.example.org.evil.example/x", "api.example.org", false),
            ("https://xapi.example.org/x", "api.example.org", false),
            ("https://example.org/x", "example.org:80", false),
            // A letter of another script that looks the same, one that stands for the same, and what a parser leaves out or reads anew.
            ("https://\u{430}pi.example.org/x", "api.example.org", false),
            ("https://\u{ff41}pi.example.org/x", "api.example.org", true),
            ("https://api.exa\tmple.org/x", "api.example.org", true),
            ("https://api.example.org%2eevil.example/x", "api.example.org", false),
            ("https://evil.example/@api.example.org", "api.example.org", false),
            ("https://evil.example\\@api.example.org/", "api.example.org", false),
            ("https://evil.example?@api.example.org/", "api.example.org", false),
            ("https://evil.example#@api.example.org/", "api.example.org", false),
            ("https://[0:0::1]:7/x", "[::1]:7", true),
            ("http://0x7f.1:7/x", "127.0.0.1:7", true),
            ("http://[::1]:7/x", "[::1]:7", true),
            ("http://127.0.0.1:7/x", "127.0.0.1:70", false),
            ("http://127.0.0.1:70/x", "127.0.0.1:7", false),
        ] {
            assert_eq!(leads_to(&address(url).expect(url), bound), leads, "{url} and {bound}");
        }
    }

    #[test]
    fn a_request_is_filled_where_it_may_be_and_goes_where_it_was_checked() {
        let mut asked = request("https://api.example.org/v1?a=%20&key=${KEY}#${KEY}");
        asked.headers = vec![
            ("Authorization".to_owned(), "Bearer ${KEY}".to_owned()),
            ("content-type".to_owned(), "application/json".to_owned()),
        ];
        asked.body = Some(r#"{"k": "${KEY}"}"#.to_owned());
        let plain = made(&asked, &KEY).expect("it is filled");
        assert_eq!(plain.url.query(), Some("a=%20&key=${KEY}"), "a text of somebody else's may stand there");
        assert_eq!(plain.body, asked.body);
        let made = made(&asked.filling_query().filling_body(), &KEY).expect("it is filled");
        assert_eq!(made.url.as_str(), "https://api.example.org/v1?a=%20&key=12345678%20%26%20more");
        assert_eq!(made.headers["authorization"], "Bearer 12345678 & more");
        assert_eq!(made.body.as_deref(), Some(r#"{"k": "12345678 & more"}"#));
    }

    #[test]
    fn a_path_is_filled_only_where_the_request_says_so_and_the_host_stays_as_it_was_checked() {
        let host = |url: &str| made(&request(url).filling_path(), &KEY).map(|made| made.url.to_string());
        let whole = host("https://api.example.org/bot${KEY}/get?a=${KEY}").expect("it is filled");
        assert_eq!(whole, "https://api.example.org/bot12345678%20%26%20more/get?a=${KEY}");
        let unsaid =
            made(&request("https://api.example.org/${KEY}"), &KEY).err().expect("it does not say so");
        assert!(unsaid.message.contains("does not say that its path"), "{unsaid}");
        for odd in [
            "https:/api.example.org/${KEY}",
            "https:api.example.org/${KEY}",
            "https://API.example.org/${KEY}",
            "https://api.example.org:443/${KEY}",
            "https://api.example.org\\${KEY}",
            "https://api.example.org/\\${KEY}",
            "https://api.example.org?${KEY}",
        ] {
            assert!(host(odd).is_err(), "{odd}");
        }
        let hostile = [BoundValue { name: "KEY", value: "../../@evil.example/?#" }];
        let url = made(&request("https://api.example.org/a/${KEY}").filling_path(), &hostile)
            .expect("it is escaped");
        assert_eq!(url.url.as_str(), "https://api.example.org/a/..%2F..%2F%40evil.example%2F%3F%23");
        assert_eq!(host_of("https://api.example.org/x").as_deref(), Some("api.example.org"));
        assert_eq!(host_of("http://127.0.0.1:81").as_deref(), Some("127.0.0.1:81"));
        assert_eq!(host_of("http://api.example.org"), None);
    }

    #[test]
    fn what_a_request_may_not_have_is_refused_without_the_secret() {
        let hostile = [BoundValue { name: "KEY", value: "1234567\r\nx-evil: 1" }];
        let with = |headers: &[(&str, &str)]| {
            let mut asked = request("https://api.example.org/");
            asked.headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            asked
        };
        let part = || FormPart::Text { name: "a".to_owned(), value: "b".to_owned() };
        let long = OutwardRequest { body: Some("x".repeat(LONGEST_REQUEST + 1)), ..with(&[]) };
        for (asked, said) in [
            (with(&[("x-key", "${KEY}")]), "has a value that no header can have"),
            (with(&[("Host", "evil.example")]), "is the daemon's to write"),
            (with(&[("Transfer-Encoding", "chunked")]), "is the daemon's to write"),
            (with(&[("Range", "bytes=7-17")]), "is the daemon's to write"),
            (with(&[("a b", "c")]), "has no name"),
            (with(&[("a", "b"); 65]), "at most 64 headers"),
            (with(&[("a", "b".repeat(9_000).as_str()); 4]), "longer than 32768 bytes"),
            (OutwardRequest { method: "TRACE".to_owned(), ..with(&[]) }, "`TRACE` is no method"),
            (OutwardRequest { method: "post".to_owned(), ..with(&[]) }, "`post` is no method"),
            (long, "longer than 1048576 bytes"),
            (with(&[("Content-Type", "text/plain")]).form(vec![part()]), "neither a body"),
            (OutwardRequest { body: Some(String::new()), ..with(&[]).form(vec![part()]) }, "neither a body"),
        ] {
            let fault = made(&asked, &hostile).err().unwrap_or_else(|| panic!("{said}"));
            assert!(fault.message.contains(said) && !fault.message.contains("1234567"), "{fault}");
        }
    }
}
