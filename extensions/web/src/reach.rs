//! Which addresses are public.
//!
//! By the registries of special addresses for IPv4 and IPv6 (iana.org/assignments/iana-ipv4-special-registry and
//! iana-ipv6-special-registry, seen 2026-11-24). An address that carries another one in it is judged by that one as well:
//! something on the way may take it out. Nothing here resolves or connects.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use drupe_extension_api::Fault;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Networks of IPv4 that are not public, and what they are.
const SPECIAL: &[(&str, &str)] = &[
    ("0.0.0.0/8", "the unspecified network"),
    ("10.0.0.0/8", "a private network"),
    // 100.100.100.200, the metadata service of Alibaba Cloud, lies here.
    ("100.64.0.0/10", "the network of carriers' address translation"),
    ("127.0.0.0/8", "this machine"),
    // 169.254.169.254, the metadata service of most clouds.
    ("169.254.0.0/16", "a link-local network"),
    ("172.16.0.0/12", "a private network"),
    // 192.0.0.192, the metadata service of Oracle's cloud, lies here.
    ("192.0.0.0/24", "a network for protocols"),
    ("192.0.2.0/24", "a network for documentation"),
    ("192.88.99.0/24", "the network of relays to IPv6"),
    ("192.168.0.0/16", "a private network"),
    ("198.18.0.0/15", "a network for benchmarks"),
    ("198.51.100.0/24", "a network for documentation"),
    ("203.0.113.0/24", "a network for documentation"),
    ("224.0.0.0/4", "a network for multicast"),
    ("240.0.0.0/4", "a reserved network"),
    // Public by its number, and answered by the host of a virtual machine:
    // learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16, seen 2026-11-24.
    ("168.63.129.16/32", "the platform service of Azure"),
];

/// The same of IPv6, inside of what is public there.
const SPECIAL_6: &[(&str, &str)] = &[
    ("2001::/23", "a network for protocols"),
    ("2001:db8::/32", "a network for documentation"),
    ("3fff::/20", "a network for documentation"),
];

/// All public addresses of IPv6 begin so.
const UNICAST: &str = "2000::/3";
/// The well-known prefix of translation to IPv4.
const NAT64: &str = "64:ff9b::/96";

static SPECIAL_NETS: LazyLock<Vec<(Ipv4Net, &'static str)>> = LazyLock::new(|| nets(SPECIAL));
static SPECIAL_6_NETS: LazyLock<Vec<(Ipv6Net, &'static str)>> = LazyLock::new(|| nets(SPECIAL_6));

fn nets<N: std::str::FromStr<Err: std::fmt::Debug>>(
    table: &[(&str, &'static str)],
) -> Vec<(N, &'static str)> {
    table.iter().map(|(net, what)| (net.parse().expect("a network of the table"), *what)).collect()
}

/// What an address is that is not public; none for a public one.
pub fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => special_4(address),
        IpAddr::V6(address) => special_6(address),
    }
}

fn special_4(address: Ipv4Addr) -> Option<&'static str> {
    SPECIAL_NETS.iter().find(|(net, _)| net.contains(&address)).map(|(_, what)| *what)
}

fn special_6(address: Ipv6Addr) -> Option<&'static str> {
    let parts = address.segments();
    let carried = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    if address.is_loopback() {
        return Some("this machine");
    }
    if let Some(mapped) = address.to_ipv4_mapped() {
        return special_4(mapped);
    }
    if within(NAT64, address) {
        return special_4(carried(parts[6], parts[7]));
    }
    if !within(UNICAST, address) {
        return Some(match parts[0] {
            0xff00.. => "a network for multicast",
            0xfec0..0xff00 | 0xfc00..0xfe00 => "a private network",
            0xfe80..0xfec0 => "a link-local network",
            _ => "no public address",
        });
    }
    // 6to4 carries the address of its router.
    if parts[0] == 0x2002
        && let Some(what) = special_4(carried(parts[1], parts[2]))
    {
        return Some(what);
    }
    // Teredo, which carries two, lies in the first of these.
    SPECIAL_6_NETS.iter().find(|(net, _)| net.contains(&address)).map(|(_, what)| *what)
}

fn within(net: &str, address: Ipv6Addr) -> bool {
    net.parse::<Ipv6Net>().is_ok_and(|net| net.contains(&address))
}

/// What the operator opens although it is not public.
#[derive(Debug, Default, Clone)]
pub struct AllowList {
    nets: Vec<IpNet>,
    hosts: Vec<String>,
}

impl AllowList {
    /// Hosts by their names, addresses, and networks.
    pub fn new(list: &[String]) -> Result<Self, Fault> {
        let mut allowed = Self::default();
        for entry in list {
            let entry = entry.trim().trim_end_matches('.').to_ascii_lowercase();
            let bare = entry.trim_start_matches('[').trim_end_matches(']');
            if let Ok(net) = entry.parse::<IpNet>() {
                allowed.nets.push(net);
            } else if let Ok(address) = bare.parse::<IpAddr>() {
                allowed.nets.push(address.into());
            } else if is_name(&entry) {
                allowed.hosts.push(entry);
            } else {
                let message = format!("`allow` holds `{entry}`, which is no host, address or network");
                return Err(
                    Fault::invalid(message).help("as `wiki.example.org`, `10.1.2.3` or `10.1.0.0/16`")
                );
            }
        }
        Ok(allowed)
    }

    /// Whether whatever a host of this name resolves to may be reached.
    pub fn host(&self, host: &str) -> bool {
        self.hosts.iter().any(|allowed| allowed == host)
    }

    /// Whether an address may be reached.
    pub fn address(&self, address: IpAddr) -> bool {
        self.nets.iter().any(|net| net.contains(&address) || net.contains(&address.to_canonical()))
    }
}

/// A name as the system of names has them; a number is a spelling of an address and none.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    text.len() <= 253 && text.split('.').all(label) && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_public_and_carried_ones_are_judged() {
        for public in ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"] {
            assert_eq!(special(public.parse().expect(public)), None, "{public}");
        }
        for (address, what) in [
            ("::ffff:127.0.0.1", "this machine"),
            ("64:ff9b::7f00:1", "this machine"),
            ("64:ff9b::a9fe:a9fe", "a link-local network"),
            ("2002:7f00:1::", "this machine"),
            ("2002:a00:1::", "a private network"),
            ("2001:0:a00:1::", "a network for protocols"),
            ("::127.0.0.1", "no public address"),
            ("::", "no public address"),
            ("fd00:ec2::254", "a private network"),
            ("fe80::1", "a link-local network"),
            ("fec0::1", "a private network"),
            ("ff02::1", "a network for multicast"),
            ("64:ff9b:1::1", "no public address"),
            ("100::1", "no public address"),
            ("5f00::1", "no public address"),
            ("3fff::1", "a network for documentation"),
            ("255.255.255.255", "a reserved network"),
            ("100.100.100.200", "the network of carriers' address translation"),
            ("168.63.129.16", "the platform service of Azure"),
        ] {
            assert_eq!(special(address.parse().expect(address)), Some(what), "{address}");
        }
    }

    #[test]
    fn the_operator_opens_names_addresses_and_networks_and_nothing_else() {
        let list = ["Wiki.Example.org.", "10.1.0.0/16", "127.0.0.1", "[::1]"].map(str::to_owned);
        let allowed = AllowList::new(&list).expect("a list");
        assert!(allowed.host("wiki.example.org") && !allowed.host("example.org"));
        for (address, expected) in [
            ("10.1.255.1", true),
            ("10.2.0.1", false),
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("::ffff:127.0.0.1", true),
            ("::1", true),
        ] {
            assert_eq!(allowed.address(address.parse().expect(address)), expected, "{address}");
        }
        for wrong in ["", "http://a", "10.0.0.0/99", "0x7f.1/8", "2130706433", "a b"] {
            let fault = AllowList::new(&[wrong.to_owned()]).expect_err(wrong);
            assert!(fault.message.contains("`allow` holds"), "{fault}");
        }
    }
}
