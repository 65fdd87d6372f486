//! Where a request may go. Judged when it is dialled, on the address dialled, and on every answer of the lookup.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Refuses what is not a public unicast address, unless a network on its list holds it.
#[derive(Debug, Clone, Default)]
pub struct AddressGuard {
    allowed: Vec<IpNet>,
}

/// A network that cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{given:?} is no network: {reason}; write it like 10.1.0.0/16 or fd00::/8")]
pub struct BadNetwork {
    given: String,
    reason: String,
}

/// Reads a network in CIDR notation, strictly: no blanks, no address bits beyond the prefix.
pub fn parse_network(text: &str) -> Result<IpNet, BadNetwork> {
    let bad = |reason: &str| BadNetwork {
        given: text.to_owned(),
        reason: reason.to_owned(),
    };
    let network: IpNet = text
        .parse()
        .map_err(|_| bad("it is not in CIDR notation"))?;
    if network.addr() != network.network() {
        return Err(bad("it has address bits beyond its prefix"));
    }
    Ok(network)
}

impl AddressGuard {
    /// A guard that also lets through what these networks hold.
    #[must_use]
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed }
    }

    /// Whether a request may go there.
    #[must_use]
    pub fn permits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allowed
            .iter()
            .any(|network| network.contains(&address))
            || match address {
                IpAddr::V4(v4) => is_public_v4(v4),
                IpAddr::V6(v6) => is_public_v6(v6),
            }
    }
}

/// The special-purpose registry of RFC 6890, as IANA keeps it.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b)))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // NAT64 (RFC 6052) and 6to4 (RFC 3056) lead to the IPv4 address they hold.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo, benchmarking, ORCHID, documentation: no place for a receiver.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Global unicast is 2000::/3; everything else is local, multicast, mapped, translated or reserved.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn permits(guard: &AddressGuard, address: &str) -> bool {
        guard.permits(address.parse().unwrap())
    }

    #[test]
    fn only_public_unicast_addresses_by_default() {
        let guard = AddressGuard::default();
        for refused in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "10.0.0.5",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.5",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd12:3456::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "64:ff9b::7f00:1",
            "64:ff9b::a00:5",
            "2002:7f00:1::1",
            "64:ff9b:1::1",
            "100::1",
            "fec0::1",
            "3fff::1",
        ] {
            assert!(!permits(&guard, refused), "{refused}");
        }
        for permitted in [
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::1",
            "2001:4860::1",
        ] {
            assert!(permits(&guard, permitted), "{permitted}");
        }
    }

    #[test]
    fn a_named_network_is_let_through_and_nothing_beside_it() {
        let guard = AddressGuard::new(vec![
            parse_network("127.0.0.0/8").unwrap(),
            parse_network("fd00::/8").unwrap(),
        ]);
        assert!(permits(&guard, "127.0.0.1"));
        assert!(permits(&guard, "::ffff:127.0.0.1"));
        assert!(permits(&guard, "fd00::1"));
        assert!(!permits(&guard, "::1"));
        assert!(!permits(&guard, "10.0.0.1"));
    }

    #[test]
    fn networks_are_read_strictly() {
        assert!(parse_network("10.0.0.0/8").is_ok());
        for bad in [
            "",
            " 10.0.0.0/8",
            "10.0.0.0/8 ",
            "10.0.0.1/8",
            "10.0.0.0",
            "10.0.0.0/33",
            "localhost",
            "*",
        ] {
            let error = parse_network(bad).unwrap_err();
            assert!(error.to_string().contains(&format!("{bad:?}")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn mapped_addresses_are_judged_as_their_ipv4(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from(bits);
            let guard = AddressGuard::default();
            prop_assert_eq!(guard.permits(IpAddr::V4(v4)), guard.permits(IpAddr::V6(v4.to_ipv6_mapped())));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = parse_network(&text);
        }
    }
}
