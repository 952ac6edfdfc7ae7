//! Which addresses a debuginfod's name may lead to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use pilotlight_wire::{Guard, Url};

/// An address, or all that begin with the same bits: `10.1.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("{text:?} is no address such as 10.1.2.3, and no network such as 10.1.0.0/16")
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most)
            .then_some(Self { address, bits })
            .ok_or_else(bad)
    }
}

impl Network {
    /// Whether an address is in it.
    pub fn holds(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| {
            let rest = width - self.bits;
            rest >= 128 || (a ^ b) >> rest == 0
        };
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

/// Lets a client of `server` connect to public addresses, to those of `networks`, and to the one
/// that the operator wrote into the URL itself.
pub fn guard(server: &Url, networks: &[Network]) -> Guard {
    let host = server.host().trim_start_matches('[').trim_end_matches(']');
    let named: Option<Network> = host.parse().ok();
    let local = host == "localhost";
    let networks: Vec<Network> = networks.iter().copied().chain(named).collect();
    Guard::new(move |address| {
        is_public(address)
            || local && address.is_loopback()
            || networks.iter().any(|network| network.holds(address))
    })
}

/// Whether an address belongs to somebody on the internet: none of this machine, link or site.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// <https://www.iana.org/assignments/iana-ipv4-special-registry>.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && b & 0xc0 == 64;
    let protocols = (a, b, c) == (192, 0, 0);
    let benchmarks = a == 198 && b & 0xfe == 18;
    !(address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || shared
        || protocols
        || benchmarks)
}

/// Of 2000::/3, what is no documentation, Teredo or other special block of 2001::/23.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let special = a == 0x2001 && (b < 0x200 || b == 0xdb8);
    let documentation = a == 0x3fff && b < 0x1000;
    a & 0xe000 == 0x2000 && !special && !documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_public_addresses_are_public() {
        for text in [
            "8.8.8.8",
            "100.128.0.1",
            "172.32.0.1",
            "2606:4700::1",
            "2a01::1",
        ] {
            assert!(is_public(ip(text)), "{text}");
        }
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "64:ff9b::a00:1",
            "100::1",
        ] {
            assert!(!is_public(ip(text)), "{text}");
        }
    }

    #[test]
    fn what_the_operator_names_is_allowed_and_nothing_beside_it() {
        let url = |text: &str| Url::parse(text).unwrap();
        let networks: Vec<Network> =
            vec!["10.1.0.0/16".parse().unwrap(), "fd00::7".parse().unwrap()];
        let by_name = guard(&url("http://debuginfod.lan:8002"), &networks);
        for (text, allowed) in [
            ("10.1.255.3", true),
            ("10.2.0.1", false),
            ("fd00::7", true),
            ("fd00::8", false),
            ("127.0.0.1", false),
            ("1.1.1.1", true),
        ] {
            assert_eq!(by_name.allows(ip(text)), allowed, "{text}");
        }
        let by_address = guard(&url("http://192.168.1.5:8002"), &[]);
        assert!(by_address.allows(ip("192.168.1.5")) && !by_address.allows(ip("192.168.1.6")));
        let local = guard(&url("http://localhost:8002"), &[]);
        assert!(local.allows(ip("::1")) && !local.allows(ip("10.0.0.1")));
        let six = guard(&url("http://[::1]:8002"), &[]);
        assert!(six.allows(ip("::1")) && !six.allows(ip("127.0.0.1")));
    }

    #[test]
    fn networks_are_read() {
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.holds(ip("9.9.9.9")) && !all.holds(ip("::9")));
        let six: Network = "::/0".parse().unwrap();
        assert!(six.holds(ip("fe80::1")));
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "a/8",
            "10.0.0.0/-1",
            "10.0.0.0/",
        ] {
            assert!(
                text.parse::<Network>().unwrap_err().contains("network"),
                "{text}"
            );
        }
    }
}
