//! Where the server may connect to when it calls functions and webhooks.
//!
//! Their addresses come from configuration and from callers, and the server stands inside somebody's network: without
//! a check, a function could be pointed at a cloud's metadata, a database or the server itself. So only public
//! addresses may be reached, and of the others those that the operator allows.
//!
//! What is checked is an address, never a name: a name can mean another address the next moment, so whoever connects
//! resolves it once and connects to exactly what was checked.

use mainstay_core::addresses::Range;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use mainstay_core::addresses::RangeError;

/// Ranges of IPv4 that are not the public internet, from the registries of IANA for special purposes.
const CLOSED_V4: [(Ipv4Addr, u8, &str); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an unspecified address"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "an address shared by a carrier's customers"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    // Public by its number, but answered by the host of every virtual machine on Azure.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud platform's own address"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private address"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "an address reserved for protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "an address for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "an address reserved for relays"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private address"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "an address for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "an address for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "an address for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast address"),
    (Ipv4Addr::BROADCAST, 32, "the broadcast address"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved address"),
];

/// Ranges of IPv6 that are not the public internet. What is outside 2000::/3 is closed in any case; such ranges are
/// here for their names.
const CLOSED_V6: [(Ipv6Addr, u8, &str); 9] = [
    (Ipv6Addr::UNSPECIFIED, 128, "an unspecified address"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback address"),
    (Ipv6Addr::new(0x0100, 0, 0, 0, 0, 0, 0, 0), 64, "an address that discards"),
    // Protocol assignments, among them the tunnels of Teredo.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "an address reserved for protocols"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "an address for documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "an address for documentation"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a unique local address"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "a link-local address"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "a multicast address"),
];

/// Which addresses may be connected to.
///
/// ```
/// use mainstay_work::egress::Egress;
///
/// let egress = Egress::new(&["10.20.0.0/16".to_owned()]).unwrap();
/// assert!(egress.check("93.184.215.14".parse().unwrap()).is_ok());
/// assert!(egress.check("10.20.30.40".parse().unwrap()).is_ok());
/// assert!(egress.check("169.254.169.254".parse().unwrap()).is_err());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Egress {
    allow: Vec<Range>,
}

/// An address that may not be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {what}; only public addresses are reached, and those that [egress] allow names")]
pub struct Refused {
    /// The address.
    pub address: IpAddr,
    /// What kind of address it is.
    pub what: &'static str,
}

impl Egress {
    /// Allows public addresses, and those in the ranges given.
    pub fn new(allow: &[String]) -> Result<Self, RangeError> {
        Ok(Self { allow: allow.iter().map(|text| text.parse()).collect::<Result<_, _>>()? })
    }

    /// Whether an address may be connected to.
    pub fn check(&self, address: IpAddr) -> Result<(), Refused> {
        let plain = address.to_canonical();
        // Behind a translator an IPv6 address leads to an IPv4 one, and that is where the connection ends.
        let ends = [Some(plain), translated(plain)];
        let mut ends = ends.iter().flatten();
        if ends.clone().any(|end| self.allow.iter().any(|range| range.contains(*end))) {
            return Ok(());
        }
        match ends.find_map(|end| closed(*end)) {
            Some(what) => Err(Refused { address, what }),
            None => Ok(()),
        }
    }
}

/// The IPv4 address that an IPv6 one of NAT64 (64:ff9b::/96) or 6to4 (2002::/16) leads to.
fn translated(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(address) = address else { return None };
    let ([0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..]) = address.segments() else {
        return None;
    };
    Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into())
}

/// What kind of address it is, when it is not a public one.
fn closed(address: IpAddr) -> Option<&'static str> {
    let within = |network: IpAddr, prefix| Range::new(network, prefix).contains(address);
    match address {
        IpAddr::V4(_) => CLOSED_V4.iter().find(|range| within(range.0.into(), range.1)).map(|range| range.2),
        IpAddr::V6(v6) => {
            let named = CLOSED_V6.iter().find(|range| within(range.0.into(), range.1)).map(|range| range.2);
            // Everything that was ever given out to the public begins with these three bits; NAT64 is judged by
            // where it leads.
            let public = v6.segments()[0] >> 13 == 1 || translated(address).is_some();
            named.or((!public).then_some("no public address"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn egress(allow: &[&str]) -> Egress {
        let allow: Vec<String> = allow.iter().map(|text| (*text).to_owned()).collect();
        Egress::new(&allow).unwrap()
    }

    fn check(egress: &Egress, address: &str) -> Result<(), &'static str> {
        egress.check(address.parse().unwrap()).map_err(|refused| refused.what)
    }

    #[test]
    fn public_addresses_are_open() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "198.17.255.255",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert_eq!(check(&egress(&[]), address), Ok(()), "{address}");
        }
    }

    #[test]
    fn everything_else_is_closed() {
        for (address, what) in [
            ("0.0.0.0", "an unspecified address"),
            ("0.1.2.3", "an unspecified address"),
            ("10.0.0.1", "a private address"),
            ("100.64.0.1", "an address shared by a carrier's customers"),
            ("100.100.100.200", "an address shared by a carrier's customers"),
            ("127.0.0.1", "a loopback address"),
            ("127.255.255.255", "a loopback address"),
            ("168.63.129.16", "a cloud platform's own address"),
            ("169.254.169.254", "a link-local address"),
            ("172.16.0.1", "a private address"),
            ("172.31.255.255", "a private address"),
            ("192.0.0.192", "an address reserved for protocols"),
            ("192.0.2.1", "an address for documentation"),
            ("192.88.99.1", "an address reserved for relays"),
            ("192.168.255.255", "a private address"),
            ("198.19.255.255", "an address for benchmarks"),
            ("198.51.100.1", "an address for documentation"),
            ("203.0.113.1", "an address for documentation"),
            ("239.1.2.3", "a multicast address"),
            ("255.255.255.255", "the broadcast address"),
            ("240.0.0.1", "a reserved address"),
            ("::", "an unspecified address"),
            ("::1", "a loopback address"),
            ("100::1", "an address that discards"),
            ("2001::1", "an address reserved for protocols"),
            ("2001:db8::1", "an address for documentation"),
            ("3fff::1", "an address for documentation"),
            ("fd00:ec2::254", "a unique local address"),
            ("fc00::1", "a unique local address"),
            ("fe80::1", "a link-local address"),
            ("fec0::1", "no public address"),
            ("ff02::1", "a multicast address"),
            ("64:ff9b:1::a00:1", "no public address"),
            ("5f00::1", "no public address"),
            ("::127.0.0.1", "no public address"),
        ] {
            assert_eq!(check(&egress(&[]), address), Err(what), "{address}");
        }
    }

    #[test]
    fn a_closed_ipv4_address_stays_closed_in_the_clothes_of_ipv6() {
        for (address, what) in [
            ("::ffff:127.0.0.1", "a loopback address"),
            ("::ffff:169.254.169.254", "a link-local address"),
            ("64:ff9b::10.0.0.1", "a private address"),
            ("64:ff9b::a9fe:a9fe", "a link-local address"),
            ("2002:7f00:1::", "a loopback address"),
            ("2002:c0a8:101::1", "a private address"),
        ] {
            assert_eq!(check(&egress(&[]), address), Err(what), "{address}");
        }
    }

    #[test]
    fn what_the_operator_allows_is_open_and_nothing_beside_it() {
        let some = egress(&["10.20.0.0/16", "127.0.0.1", "fd12:3456::/32"]);
        for open in [
            "10.20.0.0",
            "10.20.255.255",
            "127.0.0.1",
            "::ffff:127.0.0.1",
            "fd12:3456:789a::1",
            "64:ff9b::10.20.1.1",
        ] {
            assert_eq!(check(&some, open), Ok(()), "{open}");
        }
        for shut in ["10.19.255.255", "10.21.0.0", "127.0.0.2", "::1", "fd12:3457::1", "64:ff9b::10.21.1.1"] {
            assert!(check(&some, shut).is_err(), "{shut}");
        }
        assert_eq!(check(&egress(&["0.0.0.0/0"]), "10.0.0.1"), Ok(()));
        assert!(check(&egress(&["0.0.0.0/0"]), "fd00::1").is_err());
    }

    #[test]
    fn refuses_ranges_that_are_none_and_says_what_was_meant() {
        for bad in [
            "",
            "10",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "example.com",
            "10.0.0.0/8/8",
        ] {
            assert_eq!(
                Egress::new(&[bad.to_owned()]).unwrap_err(),
                RangeError::Unreadable(bad.to_owned()),
                "{bad}"
            );
        }
        let inside = Egress::new(&["10.1.2.3/8".to_owned()]).unwrap_err();
        assert_eq!(
            inside.to_string(),
            "\"10.1.2.3/8\" begins inside a range; write 10.0.0.0/8, or 10.1.2.3 for the one address"
        );
    }

    proptest! {
        #[test]
        fn the_clothes_change_nothing(bits in any::<u32>()) {
            let plain = Ipv4Addr::from(bits);
            let open = Egress::default().check(plain.into()).is_ok();
            prop_assert_eq!(Egress::default().check(plain.to_ipv6_mapped().into()).is_ok(), open);
            let [a, b, c, d] = plain.octets().map(u16::from);
            let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a << 8 | b, c << 8 | d);
            prop_assert_eq!(Egress::default().check(nat64.into()).is_ok(), open);
        }
    }
}
