//! The IP addresses that a connection may go to.
//!
//! Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IP addresses that a connection may go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// All addresses.
    #[default]
    Any,
    /// Addresses of the public internet alone. A name with any other address is refused as a whole.
    Public,
}

impl Reach {
    /// Returns the first address that a connection may not go to.
    #[must_use]
    pub fn refused(self, ips: &[IpAddr]) -> Option<IpAddr> {
        match self {
            Self::Any => None,
            Self::Public => ips.iter().copied().find(|ip| !is_public(*ip)),
        }
    }
}

/// Returns true for an address of the public internet: not loopback, private, link-local, shared (CGNAT), unique local,
/// mapped, translated, multicast, unspecified, reserved, or for documentation.
#[must_use]
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    /// The special-purpose blocks of RFC 6890 and its successors, and multicast: address and length of the prefix.
    const SPECIAL: [(u32, u32); 16] = [
        (0x0000_0000, 8),  // 0.0.0.0: this network
        (0x0a00_0000, 8),  // 10.0.0.0: private
        (0x6440_0000, 10), // 100.64.0.0: shared (CGNAT)
        (0x7f00_0000, 8),  // 127.0.0.0: loopback
        (0xa9fe_0000, 16), // 169.254.0.0: link-local, with the metadata services of clouds
        (0xac10_0000, 12), // 172.16.0.0: private
        (0xc000_0000, 24), // 192.0.0.0: protocol assignments
        (0xc000_0200, 24), // 192.0.2.0: documentation
        (0xc01f_c400, 24), // 192.31.196.0: AS112
        (0xc034_c100, 24), // 192.52.193.0: AMT
        (0xc058_6300, 24), // 192.88.99.0: 6to4 relays
        (0xc0a8_0000, 16), // 192.168.0.0: private
        (0xc612_0000, 15), // 198.18.0.0: benchmarks
        (0xc633_6400, 24), // 198.51.100.0: documentation
        (0xcb00_7100, 24), // 203.0.113.0: documentation
        (0xe000_0000, 3),  // 224.0.0.0 and 240.0.0.0: multicast, reserved, broadcast
    ];
    let bits = ip.to_bits();
    !SPECIAL.iter().any(|(block, length)| bits >> (32 - length) == block >> (32 - length))
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    /// Special prefixes within 2000::/3: address and length of each.
    const SPECIAL: [(u128, u32); 5] = [
        (0x2001_0000 << 96, 23),      // 2001::/23: Teredo, benchmarks, ORCHID and other assignments
        (0x2001_0db8 << 96, 32),      // documentation
        (0x2002_0000 << 96, 16),      // 6to4, which has an IPv4 address inside
        (0x2620_004f_8000 << 80, 48), // AS112
        (0x3fff_0000 << 96, 20),      // documentation
    ];
    let bits = ip.to_bits();
    // All else is outside of the global unicast space: ::1, ::, ::ffff:0:0/96, 64:ff9b::/96, fc00::/7, fe80::/10,
    // ff00::/8.
    bits >> 125 == 1 && !SPECIAL.iter().any(|(block, length)| bits >> (128 - length) == block >> (128 - length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn addresses_of_the_internet_are_public() {
        for text in [
            "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
            "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0",
            "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1111",
            "2a00:1450:4001::1", "2001:4860:4860::8888", "2620:fe::fe",
        ] {
            assert!(is_public(ip(text)), "{text}");
        }
    }

    #[test]
    fn addresses_of_hosts_and_networks_are_not_public() {
        for text in [
            "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1",
            "127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1",
            "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
            "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1",
            "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1",
            "3fff::1", "5f00::1", "fc00::1", "fd12:3456::1", "fe80::1", "fec0::1", "ff02::1",
        ] {
            assert!(!is_public(ip(text)), "{text}");
        }
    }

    #[test]
    fn one_address_of_several_refuses_the_name() {
        let mixed = [ip("8.8.8.8"), ip("10.0.0.1"), ip("127.0.0.1")];
        assert_eq!((Reach::Public.refused(&mixed), Reach::Any.refused(&mixed)), (Some(ip("10.0.0.1")), None));
        assert_eq!(Reach::Public.refused(&mixed[..1]), None);
    }
}
