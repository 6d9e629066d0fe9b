//! Where an endpoint may lie. Pure.

use reqwest::Url;

/// An address that nobody on the way reads or changes; none where it is no such one.
pub fn address(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let host = url.host_str()?;
    let here = host == "localhost"
        || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let safe = url.scheme() == "https" || (url.scheme() == "http" && here);
    // What stands before an `@` is a password in the wrong place, or meant to mislead whoever reads it.
    (safe && url.username().is_empty() && url.password().is_none()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_reached_by_tls_or_on_this_machine() {
        for good in
            ["https://hooks.example/x?y=1", "http://127.0.0.1:9/", "http://[::1]:9/", "http://localhost/"]
        {
            assert!(address(good).is_some(), "{good}");
        }
        for bad in [
            "http://hooks.example/",
            "ftp://localhost/",
            "https://u:p@hooks.example/",
            "http://127.0.0.1.example/",
            "x",
            "",
        ] {
            assert!(address(bad).is_none(), "{bad}");
        }
    }
}
