//! Which addresses a worker may connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// What is wrong with a network of the allowlist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadNetwork {
    /// Not `address/prefix`. Blanks count as a fault: an entry that silently never matches is worse.
    #[error("{0:?} is not a network such as 10.1.0.0/16 or fd00:1::/32, without blanks")]
    Syntax(String),
    /// Bits after the prefix are set, so it is unclear which network was meant.
    #[error("{0} has bits set after its prefix; the network is {1}")]
    HostBits(String, IpNet),
    /// IPv4-mapped addresses are judged as IPv4, so an entry for them would never match.
    #[error("{0} is IPv4 written as IPv6; write the IPv4 network")]
    Mapped(String),
}

/// Reads a network of the allowlist, strictly: `10.1.0.0/16`, `fd00:1::/32`.
///
/// # Errors
/// Anything else: blanks, a missing prefix, bits set after the prefix, IPv4-mapped IPv6.
pub fn parse_network(text: &str) -> Result<IpNet, BadNetwork> {
    let syntax = || BadNetwork::Syntax(text.to_owned());
    // The standard parser refuses what others read as octal.
    let (address, prefix) = text.split_once('/').ok_or_else(syntax)?;
    let address: IpAddr = address.parse().map_err(|_| syntax())?;
    if prefix.starts_with(['0', '+']) && prefix != "0" {
        return Err(syntax());
    }
    let prefix: u8 = prefix.parse().map_err(|_| syntax())?;
    let network = IpNet::new(address, prefix).map_err(|_| syntax())?;
    if network.trunc() != network {
        return Err(BadNetwork::HostBits(text.to_owned(), network.trunc()));
    }
    match network {
        IpNet::V6(v6) if v6.prefix_len() >= 96 && v6.addr().to_ipv4_mapped().is_some() => {
            Err(BadNetwork::Mapped(text.to_owned()))
        }
        _ => Ok(network),
    }
}

/// Judges addresses before they are dialled: public ones are permitted, and of the others only
/// those that the allowlist names.
#[derive(Debug, Clone, Default)]
pub struct AddressGuard {
    allowed: Vec<IpNet>,
}

impl AddressGuard {
    /// A guard that permits `allowed` besides what is public.
    #[must_use]
    pub const fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed }
    }

    /// Whether the worker may connect to `address`.
    ///
    /// An IPv4-mapped address is judged as its IPv4 address, a NAT64 one (RFC 6052, `64:ff9b::/96`)
    /// also as the address it leads to. 6to4 and Teredo are refused: where they lead depends on
    /// relays that we do not know.
    #[must_use]
    pub fn permits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if self
            .allowed
            .iter()
            .any(|network| network.contains(&address))
        {
            return true;
        }
        match address {
            IpAddr::V4(v4) => is_public_v4(v4),
            IpAddr::V6(v6) => match nat64(v6) {
                Some(v4) => self.permits(IpAddr::V4(v4)),
                None => is_public_v6(v6),
            },
        }
    }
}

/// What is not public in IPv4: the IANA special-purpose registry (RFC 6890), multicast, and one
/// public-looking address that is not.
const REFUSED_V4: [Ipv4Net; 17] = [
    v4(0, 0, 0, 0, 8),          // this network, unspecified
    v4(10, 0, 0, 0, 8),         // private
    v4(100, 64, 0, 0, 10),      // shared, behind carrier NAT
    v4(127, 0, 0, 0, 8),        // loopback
    v4(168, 63, 129, 16, 32),   // Azure's host agent, reachable from every virtual machine there
    v4(169, 254, 0, 0, 16),     // link-local, cloud metadata
    v4(172, 16, 0, 0, 12),      // private
    v4(192, 0, 0, 0, 24),       // protocol assignments
    v4(192, 0, 2, 0, 24),       // documentation
    v4(192, 88, 99, 0, 24),     // 6to4 relays
    v4(192, 168, 0, 0, 16),     // private
    v4(198, 18, 0, 0, 15),      // benchmarking
    v4(198, 51, 100, 0, 24),    // documentation
    v4(203, 0, 113, 0, 24),     // documentation
    v4(224, 0, 0, 0, 4),        // multicast
    v4(240, 0, 0, 0, 4),        // reserved
    v4(255, 255, 255, 255, 32), // broadcast
];

/// All that IPv6 has handed out to the public (RFC 4291 §2.4, IANA); loopback, unspecified,
/// IPv4-compatible, unique-local, link-local, site-local and multicast lie outside.
const PUBLIC_V6: Ipv6Net = v6(0x2000, 0, 3);

/// What is special inside it.
const REFUSED_V6: [Ipv6Net; 4] = [
    v6(0x2001, 0, 23),     // protocol assignments: Teredo, benchmarking, ORCHID
    v6(0x2001, 0xdb8, 32), // documentation
    v6(0x2002, 0, 16),     // 6to4
    v6(0x3fff, 0, 20),     // documentation
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    !REFUSED_V4.iter().any(|network| network.contains(&address))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    PUBLIC_V6.contains(&address) && !REFUSED_V6.iter().any(|network| network.contains(&address))
}

fn nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let well_known = bits >> 32 == 0x0064_ff9b_u128 << 64;
    #[allow(clippy::cast_possible_truncation)] // the low 32 bits are the IPv4 address
    well_known.then(|| Ipv4Addr::from_bits(bits as u32))
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(first: u16, second: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0), prefix)
}

#[cfg(test)]
mod tests;
