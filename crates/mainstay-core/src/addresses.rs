//! Ranges of addresses, as they are written down.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses: those that share the first bits of a network. It is read from `10.0.0.0/8` or `fd00::1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    network: IpAddr,
    prefix: u8,
}

/// A text that is no range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// It cannot be read.
    #[error("{0:?} is no range of addresses; one looks like 10.0.0.0/8, fd00::/8 or 192.168.1.7")]
    Unreadable(String),
    /// It names an address inside a range, and perhaps a smaller range was meant.
    #[error("{given:?} begins inside a range; write {meant}, or {address} for the one address")]
    Inside {
        /// What was given.
        given: String,
        /// The range that it lies in.
        meant: String,
        /// The address alone.
        address: IpAddr,
    },
}

impl Range {
    /// The addresses that share the first `prefix` bits of `address`.
    pub fn new(address: IpAddr, prefix: u8) -> Self {
        Self { network: first_bits(address, prefix), prefix: prefix.min(Self::width(address)) }
    }

    /// Whether an address is among them.
    pub fn contains(self, address: IpAddr) -> bool {
        self.network.is_ipv4() == address.is_ipv4()
            && first_bits(self.network, self.prefix) == first_bits(address, self.prefix)
    }

    fn width(address: IpAddr) -> u8 {
        if address.is_ipv4() { 32 } else { 128 }
    }
}

/// The address with everything after the first bits set to zero.
fn first_bits(address: IpAddr, prefix: u8) -> IpAddr {
    let keep = |width: u32| u32::from(prefix).min(width);
    match address {
        IpAddr::V4(v4) => {
            Ipv4Addr::from(v4.to_bits() & u32::MAX.checked_shl(32 - keep(32)).unwrap_or(0)).into()
        }
        IpAddr::V6(v6) => {
            Ipv6Addr::from(v6.to_bits() & u128::MAX.checked_shl(128 - keep(128)).unwrap_or(0)).into()
        }
    }
}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let unreadable = || RangeError::Unreadable(text.to_owned());
        let (address, prefix) = match text.trim().split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| unreadable())?;
        let width = Self::width(address);
        let prefix = match prefix {
            Some(prefix) if prefix.bytes().all(|byte| byte.is_ascii_digit()) => {
                prefix.parse().ok().filter(|prefix| *prefix <= width).ok_or_else(unreadable)?
            }
            Some(_) => return Err(unreadable()),
            None => width,
        };
        let range = Self::new(address, prefix);
        if range.network == address {
            Ok(range)
        } else {
            Err(RangeError::Inside { given: text.to_owned(), meant: range.to_string(), address })
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.network, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_range_holds_what_shares_its_first_bits(bits in any::<u32>(), other in any::<u32>(), prefix in 0_u8..=32) {
            let range = Range::new(Ipv4Addr::from(bits).into(), prefix);
            let same = prefix == 0 || bits >> (32 - prefix) == other >> (32 - prefix);
            prop_assert_eq!(range.contains(Ipv4Addr::from(other).into()), same);
            prop_assert_eq!(range.to_string().parse::<Range>(), Ok(range));
        }
    }
}
