//! The global addresses, according to IANA's special-purpose registries.

#![forbid(unsafe_code)]

use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IPv4 networks that are not global.
const SPECIAL_V4: [Ipv4Net; 16] = [
    v4([0, 0, 0, 0], 8),          // this network
    v4([10, 0, 0, 0], 8),         // private
    v4([100, 64, 0, 0], 10),      // shared by carriers
    v4([127, 0, 0, 0], 8),        // loopback
    v4([169, 254, 0, 0], 16),     // link-local, with the metadata of clouds
    v4([172, 16, 0, 0], 12),      // private
    v4([192, 0, 0, 0], 24),       // protocols
    v4([192, 0, 2, 0], 24),       // documentation
    v4([192, 88, 99, 0], 24),     // relays of 6to4
    v4([192, 168, 0, 0], 16),     // private
    v4([198, 18, 0, 0], 15),      // benchmarks
    v4([198, 51, 100, 0], 24),    // documentation
    v4([203, 0, 113, 0], 24),     // documentation
    v4([224, 0, 0, 0], 4),        // multicast
    v4([240, 0, 0, 0], 4),        // reserved
    v4([255, 255, 255, 255], 32), // broadcast
];

/// The IPv6 network that is global, with exceptions.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0], 3);

/// The networks within [`GLOBAL_V6`] that are not global. A 6to4 address contains an IPv4 address,
/// and Teredo is a part of the protocols. Both are out of use.
const SPECIAL_V6: [Ipv6Net; 4] = [
    v6([0x2001, 0, 0], 23),     // protocols
    v6([0x2001, 0xdb8, 0], 32), // documentation
    v6([0x2002, 0, 0], 16),     // 6to4
    v6([0x3fff, 0, 0], 20),     // documentation
];

/// The prefix of IPv4 addresses in IPv6-only networks (NAT64).
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0], 96);

const fn v4([a, b, c, d]: [u8; 4], bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6([a, b, c]: [u16; 3], bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), bits)
}

/// Returns the IPv4 address for an IPv4-mapped IPv6 address, because the system connects to both in
/// the same way.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Returns `true` if an address is reachable from everywhere, and so leads to nothing internal.
pub(super) fn is_global(address: IpAddr) -> bool {
    match canonical(address) {
        IpAddr::V4(address) => is_global_v4(address),
        IpAddr::V6(address) if NAT64.contains(&address) => {
            let [.., a, b, c, d] = address.octets();
            is_global_v4(Ipv4Addr::new(a, b, c, d))
        }
        IpAddr::V6(address) => {
            GLOBAL_V6.contains(&address)
                && !SPECIAL_V6.iter().any(|network| network.contains(&address))
        }
    }
}

fn is_global_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the address with every IPv6 form that contains it.
    fn forms(address: Ipv4Addr) -> [IpAddr; 5] {
        let [a, b, c, d] = address.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        let v6 = |a, b, c, f, g, h| IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, f, g, h));
        [
            IpAddr::V4(address),
            v6(0, 0, 0, 0xffff, high, low),    // mapped
            v6(0, 0, 0, 0, high, low),         // compatible
            v6(0x64, 0xff9b, 0, 0, high, low), // NAT64
            v6(0x2002, high, low, 0, 0, 0),    // 6to4
        ]
    }

    /// Returns `true` if the standard library knows an address to be internal.
    fn is_internal(address: Ipv4Addr) -> bool {
        address.is_private()
            || address.is_loopback()
            || address.is_link_local()
            || address.is_broadcast()
            || address.is_documentation()
            || address.is_multicast()
            || address.is_unspecified()
            || matches!(address.octets(), [0 | 240.., ..] | [100, 64..128, ..] | [198, 18 | 19, ..])
    }

    /// Generates addresses, most of them within or beside a special network.
    fn any_v4() -> impl Strategy<Value = Ipv4Addr> {
        let near =
            (0..SPECIAL_V4.len(), any::<u32>(), -2..=2_i64).prop_map(|(place, bits, step)| {
                let network = SPECIAL_V4[place];
                let host = bits & u32::from(network.hostmask());
                let edge = if bits % 2 == 0 { host } else { 0 };
                let address = i64::from(u32::from(network.network())) + i64::from(edge) + step;
                Ipv4Addr::from(u32::try_from(address.clamp(0, u32::MAX.into())).expect("clamped"))
            });
        prop_oneof![near, any::<Ipv4Addr>()]
    }

    proptest! {
        #[test]
        fn no_form_of_an_internal_address_is_global(address in any_v4()) {
            if is_internal(address) {
                for form in forms(address) {
                    prop_assert!(!is_global(form), "{form}");
                }
            }
        }

        #[test]
        fn a_global_address_is_global_where_the_system_or_a_gateway_unwraps_it(address in any_v4()) {
            let global = is_global(IpAddr::V4(address));
            let [_, mapped, compatible, nat64, six_to_four] = forms(address);
            prop_assert_eq!(is_global(mapped), global);
            prop_assert_eq!(is_global(nat64), global);
            prop_assert!(!is_global(compatible) && !is_global(six_to_four));
        }

        #[test]
        fn no_address_of_ipv6_outside_of_the_global_range_is_global(bits in any::<u128>()) {
            let address = Ipv6Addr::from(bits);
            let internal = address.is_loopback()
                || address.is_multicast()
                || address.is_unique_local()
                || address.is_unicast_link_local()
                || address.is_unspecified()
                || bits >> 125 != 1;
            let is_wrapped = address.to_ipv4_mapped().is_some() || NAT64.contains(&address);
            prop_assert!(!internal || is_wrapped || !is_global(IpAddr::V6(address)));
        }
    }

    #[test]
    fn well_known_addresses() {
        for (address, global) in [
            ("1.1.1.1", true),
            ("93.184.215.14", true),
            ("126.255.255.255", true),
            ("128.0.0.0", true),
            ("172.15.255.255", true),
            ("172.32.0.0", true),
            ("223.255.255.255", true),
            ("192.0.1.0", true),
            ("2606:4700:4700::1111", true),
            ("2a00:1450:4001:82f::200e", true),
            ("64:ff9b::101:101", true),
            ("169.254.169.254", false),
            ("100.100.100.200", false),
            ("192.0.0.192", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:169.254.169.254", false),
            ("::127.0.0.1", false),
            ("64:ff9b::a9fe:a9fe", false),
            ("64:ff9b:1::101:101", false),
            ("100::1", false),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("2002:7f00:1::", false),
            ("3fff::1", false),
            ("5f00::1", false),
            ("fd00:ec2::254", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ] {
            let parsed: IpAddr = address.parse().expect("an address");
            assert_eq!(is_global(parsed), global, "{address}");
        }
    }
}
