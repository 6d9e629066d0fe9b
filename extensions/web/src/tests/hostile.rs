//! Addresses by which somebody would have us reach what is not public.

use std::sync::Arc;

use drupe_extension_api::FaultCode;

use super::support::{Fake, Server, fetch, fetcher, get, page, web};
use serde_json::json;

/// Refused by their form or by the address that stands in them.
const HOSTILE: &[&str] = &[
    // Other schemes, and what is none.
    "file:///etc/passwd",
    "ftp://public.example/",
    "gopher://127.0.0.1:6379/_INFO",
    "dict://127.0.0.1:11211/stat",
    "ldap://127.0.0.1/",
    "data:text/html,hello",
    "javascript:alert(1)",
    "blob:http://public.example/1",
    "view-source:http://public.example/",
    "jar:http://public.example/!/",
    "ws://public.example/",
    "unix:///run/docker.sock",
    "about:blank",
    "/etc/passwd",
    "//public.example/",
    "public.example",
    "http:",
    "http://",
    "https:///",
    "",
    "http://[",
    "http://[::1",
    "http://public.example:99999/",
    "http://public.example:0/",
    "http://public .example/",
    "http://public.example%00.127.0.0.1/",
    "http://%00/",
    // Users and passwords.
    "http://public.example@127.0.0.1/",
    "http://user:secret@public.example/",
    "http://user@public.example/",
    "http://:secret@public.example/",
    "http://public.example:80@127.0.0.1/",
    "http://127.0.0.1:80\\@public.example/",
    // This machine by its names.
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://foo.localhost/",
    "http://localhost.localdomain/",
    "http://localhost4/",
    "http://localhost6/",
    "http://ip6-localhost/",
    "http://ip6-loopback/",
    "http://broadcasthost/",
    "http://printer.local/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://wiki.intranet/",
    "http://router.lan/",
    "http://nas.home.arpa/",
    "http://ⓛocalhost/",
    "http://local\u{ad}host/",
    "http://lo\tcalhost/",
    // This machine by its addresses and their spellings.
    "http://127.0.0.1/",
    "http://127.0.0.1:22/",
    "http://127.0.0.1./",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.255.255.254/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0x7f.0.0.1/",
    "http://0x7F.0x0.0x0.0x1/",
    "http://0177.0.0.1/",
    "http://0177.1/",
    "http://017700000001/",
    "http://00000177.0.0.01/",
    "http://127.0.0.1.:80/",
    "http://①②⑦.⓪.⓪.①/",
    "http://１２７.０.０.１/",
    "http://127。0。0。1/",
    "http://%31%32%37.0.0.1/",
    "http://127.0.0.1%2f@public.example/",
    "http:\\\\127.0.0.1\\",
    "http:127.0.0.1/",
    "http:/127.0.0.1/",
    "http:////127.0.0.1/",
    "\u{0}http://127.0.0.1/",
    "http://0/",
    "http://0.0.0.0/",
    "http://0.0.0.0:8080/",
    "http://0.1.2.3/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[0000::0001]:80/",
    // Addresses of IPv4 in ones of IPv6.
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:7f00:0001]/",
    "http://[::ffff:10.0.0.1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[::127.0.0.1]/",
    "http://[::8.8.8.8]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2002:c0a8:101::]/",
    "http://[2001:0:7f00:1::]/",
    "http://[2001::1]/",
    "http://[::ffff:0:127.0.0.1]/",
    // Private networks.
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://012.0.0.1/",
    "http://0x0a000001/",
    "http://167772161/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.0.1/",
    "http://192.168.1/",
    "http://3232235521/",
    "http://[fc00::1]/",
    "http://[fd12:3456:789a::1]/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://[fec0::1]/",
    // Link-local ones, and services of clouds.
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/v2/credentials",
    "http://169.254.0.1/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://0xA9.0xFE.0xA9.0xFE/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[febf::1]/",
    "http://100.100.100.200/latest/meta-data/",
    "http://192.0.0.192/",
    "http://168.63.129.16/",
    // Networks of carriers, for documentation, for benchmarks; multicast, broadcast, reserved.
    "http://100.64.0.1/",
    "http://100.127.255.255/",
    "http://192.0.0.1/",
    "http://192.0.2.1/",
    "http://192.88.99.1/",
    "http://198.18.0.1/",
    "http://198.19.255.255/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[2001:2::1]/",
    "http://[100::1]/",
    "http://[5f00::1]/",
    "http://224.0.0.1/",
    "http://239.255.255.250:1900/",
    "http://[ff02::1]/",
    "http://[ff0e::1]/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    // A public address under a spelling that others read otherwise.
    "http://134744072/",
    "http://0x08080808/",
    "http://010.8.8.8/",
    "http://8.8.2056/",
];

/// Addresses that names of strangers lead to.
const LED_TO: &[&[&str]] = &[
    &["127.0.0.1"],
    &["::1"],
    &["0.0.0.0"],
    &["::"],
    &["10.1.2.3"],
    &["192.168.1.1"],
    &["172.20.0.1"],
    &["169.254.169.254"],
    &["fd00:ec2::254"],
    &["fe80::1"],
    &["100.64.0.1"],
    &["::ffff:127.0.0.1"],
    &["64:ff9b::7f00:1"],
    &["2002:7f00:1::"],
    &["224.0.0.1"],
    &["255.255.255.255"],
    &["198.18.0.1"],
    &["192.0.2.1"],
    // One good address among them, first or last, makes none of them good.
    &["93.184.216.34", "127.0.0.1"],
    &["127.0.0.1", "93.184.216.34"],
    &["2606:4700:4700::1111", "fe80::1"],
];

fn refused(fault: &drupe_extension_api::Fault) -> bool {
    matches!(fault.code, FaultCode::Denied | FaultCode::Invalid)
}

#[test]
fn of_more_than_a_hundred_hostile_addresses_none_is_connected_to() {
    let fake = Arc::<Fake>::default().name("public.example", &[&["93.184.216.34"]]);
    let fetcher = fetcher(&fake, &[]);
    assert!(HOSTILE.len() > 100);
    for url in HOSTILE {
        match get(&fetcher, url) {
            Err(fault) => assert!(refused(&fault), "{url}: {fault:?}"),
            Ok(fetched) => panic!("{url} was fetched from {}", fetched.url),
        }
    }
    assert_eq!((fake.connected(), fake.resolved()), (vec![], vec![]));
}

#[test]
fn a_name_that_leads_to_a_hostile_address_is_looked_up_and_not_connected_to() {
    for answers in LED_TO {
        let fake = Arc::<Fake>::default().name("evil.example", &[*answers]);
        let fault = get(&fetcher(&fake, &[]), "http://evil.example/").err().expect("a fault");
        assert!(refused(&fault) && fault.message.contains("is not public"), "{answers:?}: {fault}");
        assert_eq!((fake.connected().len(), fake.resolved().len()), (0, 1), "{answers:?}");
    }
}

#[test]
fn the_address_that_was_checked_is_the_one_that_is_connected_to_however_the_name_changes() {
    let server = Server::start(|_| page("<p>Public."));
    let fake = Arc::<Fake>::default()
        .name("rebinding.example", &[&["93.184.216.34"], &["127.0.0.1"]])
        .place("93.184.216.34:80", &server)
        .place("127.0.0.1:80", &server);
    let fetcher = fetcher(&fake, &[]);
    get(&fetcher, "http://rebinding.example/").map_err(|fault| panic!("{fault}")).ok();
    assert_eq!((fake.connected(), fake.resolved().len()), (vec!["93.184.216.34:80".to_owned()], 1));
    let fault = get(&fetcher, "http://rebinding.example/").err().expect("it leads elsewhere by now");
    assert_eq!(fault.code, FaultCode::Denied);
    assert_eq!((fake.connected().len(), server.connections()), (1, 1));
}

#[test]
fn what_the_operator_opens_is_reached_and_nothing_beside_it() {
    let server = Server::start(|_| page("<p>Inside."));
    let fake = Arc::<Fake>::default()
        .name("wiki.corp.example", &[&["10.1.2.3"]])
        .name("db.corp.example", &[&["10.2.0.1"]])
        .place("10.1.2.3:80", &server);
    for allow in [&["wiki.corp.example"], &["10.1.0.0/16"], &["10.1.2.3"]] {
        let fetcher = fetcher(&fake, allow);
        assert!(get(&fetcher, "http://wiki.corp.example/").is_ok(), "{allow:?}");
        for closed in ["http://db.corp.example/", "http://10.2.0.1/", "http://127.0.0.1/"] {
            let fault = get(&fetcher, closed).err().expect(closed);
            assert!(refused(&fault), "{closed}: {fault}");
        }
    }
    assert!(fake.connected().iter().all(|to| to == "10.1.2.3:80"));
}

#[test]
fn the_tool_refuses_them_too() {
    let server = Server::start(|_| page("<p>Inside."));
    let web = web(json!({"allow": []}));
    for url in [server.url("/"), format!("http://localhost:{}/", server.address.port())] {
        let fault = fetch(&web, &url).expect_err("it is this machine");
        assert!(fault.code == FaultCode::Denied && fault.message.contains("is not read"), "{fault}");
    }
    assert_eq!(server.connections(), 0);
}
