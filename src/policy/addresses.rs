//! Which addresses a host may have: `addresses` of contract, section 7.
//!
//! Promises: [`Addresses::contains`] is total and pure, and says no to whatever it does not know. An IPv6 address that embeds an IPv4
//! address is judged by the embedded one too and is never let further than it. Taker: `egress`, for the whole answer of a look-up, before
//! it dials; and the reader of a host, for `resolve`.
//!
//! Source: the IANA registries "IPv4 Special-Purpose Address Space" and "IPv6 Special-Purpose Address Space" (RFC 6890, RFC 8190), "IPv6
//! Global Unicast Address Assignments" (2000::/3, RFC 4291 section 2.4) and the multicast spaces (RFC 5771, RFC 4291 section 2.7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::model::{Addresses, Network};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Network {
    Network {
        address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        prefix,
    }
}

const fn v6(head: [u16; 4], prefix: u8) -> Network {
    let [a, b, c, d] = head;
    Network {
        address: IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)),
        prefix,
    }
}

const fn one(bits: u128) -> Network {
    Network {
        address: IpAddr::V6(Ipv6Addr::from_bits(bits)),
        prefix: 128,
    }
}

/// IPv4 that is not public.
const NOT_PUBLIC_V4: [Network; 17] = [
    v4(0, 0, 0, 0, 8),          // "this network", RFC 791
    v4(10, 0, 0, 0, 8),         // private, RFC 1918
    v4(100, 64, 0, 0, 10), // shared (carrier-grade NAT), RFC 6598; cloud metadata at 100.100.100.200 among it
    v4(127, 0, 0, 0, 8),   // loopback, RFC 1122
    v4(168, 63, 129, 16, 32), // Azure's platform address inside a virtual machine: not in the registry, answers like metadata
    v4(169, 254, 0, 0, 16),   // link-local, RFC 3927; metadata at 169.254.169.254 among it
    v4(172, 16, 0, 0, 12),    // private, RFC 1918
    v4(192, 0, 0, 0, 24),     // IETF protocol assignments, RFC 6890
    v4(192, 0, 2, 0, 24),     // documentation, RFC 5737
    v4(192, 88, 99, 0, 24),   // 6to4 relay anycast, deprecated, RFC 7526
    v4(192, 168, 0, 0, 16),   // private, RFC 1918
    v4(198, 18, 0, 0, 15),    // benchmarking, RFC 2544
    v4(198, 51, 100, 0, 24),  // documentation, RFC 5737
    v4(203, 0, 113, 0, 24),   // documentation, RFC 5737
    v4(224, 0, 0, 0, 4),      // multicast, RFC 5771
    v4(240, 0, 0, 0, 4),      // reserved, RFC 1112
    v4(255, 255, 255, 255, 32), // limited broadcast, RFC 8190
];

/// IPv6 inside 2000::/3 that is not public. What lies outside 2000::/3 (unspecified, loopback, IPv4-compatible, discard-only 100::/64,
/// 64:ff9b:1::/48 of RFC 8215, unique-local, link-local, site-local, multicast, SRv6 5f00::/16) is not public to begin with.
const NOT_PUBLIC_V6: [Network; 4] = [
    v6([0x2001, 0, 0, 0], 23), // IETF protocol assignments, RFC 2928: Teredo, benchmarking, ORCHID and ORCHIDv2 among them
    v6([0x2001, 0xdb8, 0, 0], 32), // documentation, RFC 3849
    v6([0x3fff, 0, 0, 0], 20), // documentation, RFC 9637
    v6([0x3ffe, 0, 0, 0], 16), // the former 6bone, returned, RFC 3701
];

const GLOBAL_UNICAST: Network = v6([0x2000, 0, 0, 0], 3);
const PRIVATE: [Network; 4] = [
    v4(10, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
    v6([0xfc00, 0, 0, 0], 7),
];
/// Where clouds answer a machine with its own credentials over IPv6: unique-local, and yet no private host. Source: each cloud's page on
/// instance metadata.
const METADATA_V6: [Network; 6] = [
    v6([0xfd00, 0xec2, 0, 0], 32), // Amazon: metadata ::254, credentials of a pod ::23
    one(0xfd20_00ce_0000_0000_0000_0000_0000_0254), // Google
    one(0xfd00_00c1_0000_0000_0000_0000_a9fe_a9fe), // Oracle
    one(0xfd00_0042_0000_0000_0000_0000_0000_0042), // Scaleway
    one(0xfd00_a9fe_a9fe_0000_0000_0000_0000_0001), // Akamai (Linode)
    one(0xfd00_0100_0000_0000_0000_0000_0100_0200), // Alibaba
];

impl Network {
    /// Whether the address lies in this prefix. An IPv6 address never lies in an IPv4 prefix, also where it embeds one.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = mask(u128::from(u32::MAX), 32, self.prefix);
                self.prefix <= 32
                    && u128::from(network.to_bits()) & mask == u128::from(address.to_bits()) & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = mask(u128::MAX, 128, self.prefix);
                self.prefix <= 128 && network.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// Whether the bits after the prefix are zero and the prefix is not longer than the address.
    pub(super) fn is_clean(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => {
                self.prefix <= 32
                    && u128::from(address.to_bits()) & !mask(u128::from(u32::MAX), 32, self.prefix)
                        == 0
            }
            IpAddr::V6(address) => {
                self.prefix <= 128 && address.to_bits() & !mask(u128::MAX, 128, self.prefix) == 0
            }
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The first `prefix` of `width` bits, all of which are `ones`.
fn mask(ones: u128, width: u32, prefix: u8) -> u128 {
    let rest = width.saturating_sub(u32::from(prefix));
    ones & ones.checked_shl(rest).unwrap_or(0)
}

impl Addresses {
    /// Whether a host of this class may have the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match self {
            Addresses::Public => is_public(address),
            Addresses::Loopback => is_loopback(address),
            Addresses::Private => {
                PRIVATE.iter().any(|network| network.contains(address))
                    && !METADATA_V6.iter().any(|network| network.contains(address))
            }
            Addresses::Networks(networks) => {
                let listed = |address| networks.iter().any(|network| network.contains(address));
                // An embedding address needs both: to be listed itself, and its IPv4 listed or public.
                listed(address)
                    && match embedded_v4(address) {
                        Embedded::Nothing => true,
                        Embedded::V4(inner) => {
                            listed(IpAddr::V4(inner)) || is_public(IpAddr::V4(inner))
                        }
                        Embedded::Unclear => false,
                    }
            }
        }
    }
}

/// 127.0.0.0/8 and ::1; never an address that embeds one of them.
pub(super) fn is_loopback(address: IpAddr) -> bool {
    address.is_loopback()
}

fn is_public(address: IpAddr) -> bool {
    match (address, embedded_v4(address)) {
        (IpAddr::V4(_), _) => !NOT_PUBLIC_V4
            .iter()
            .any(|network| network.contains(address)),
        (IpAddr::V6(_), Embedded::V4(inner)) => is_public(IpAddr::V4(inner)),
        (IpAddr::V6(_), Embedded::Unclear) => false,
        (IpAddr::V6(_), Embedded::Nothing) => {
            GLOBAL_UNICAST.contains(address)
                && !NOT_PUBLIC_V6
                    .iter()
                    .any(|network| network.contains(address))
        }
    }
}

/// The IPv4 address inside an IPv6 address.
enum Embedded {
    /// It embeds none.
    Nothing,
    /// It embeds this one.
    V4(Ipv4Addr),
    /// It embeds one in a form that nobody should dial any more, or at a place that is not fixed.
    Unclear,
}

fn embedded_v4(address: IpAddr) -> Embedded {
    let IpAddr::V6(address) = address else {
        return Embedded::Nothing;
    };
    let bits = address.to_bits();
    let low = Ipv4Addr::from_bits((bits & u128::from(u32::MAX)) as u32);
    match address.segments() {
        // :: and ::1 embed nothing; the rest of ::/96 is IPv4-compatible, deprecated (RFC 4291, section 2.5.5.1).
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Embedded::Nothing,
        [0, 0, 0, 0, 0, 0, _, _] => Embedded::Unclear,
        // IPv4-mapped (RFC 4291, section 2.5.5.2).
        [0, 0, 0, 0, 0, 0xffff, _, _] => Embedded::V4(low),
        // IPv4-translated (RFC 2765, section 2.1): the stateless form, never dialled by name.
        [0, 0, 0, 0, 0xffff, 0, _, _] => Embedded::Unclear,
        // NAT64, well-known prefix (RFC 6052, section 2.1).
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Embedded::V4(low),
        // NAT64, local use (RFC 8215): where the IPv4 stands depends on the site.
        [0x64, 0xff9b, 1, ..] => Embedded::Unclear,
        // 6to4 (RFC 3056, section 2): bits 16 to 47.
        [0x2002, high, low, ..] => Embedded::V4(Ipv4Addr::from_bits(
            (u32::from(high) << 16) | u32::from(low),
        )),
        // Teredo (RFC 4380, section 4): server and obfuscated client.
        [0x2001, 0, ..] => Embedded::Unclear,
        // ISATAP (RFC 5214, section 6.1): interface identifier [02]00:5efe:IPv4 under any prefix.
        [.., 0 | 0x200, 0x5efe, _, _] => Embedded::Unclear,
        _ => Embedded::Nothing,
    }
}

#[cfg(test)]
mod tests;
