//! Which address a request comes from, when others stand in between.

use super::{Head, ProxyHeader};
use crate::{Error, Result};
use mainstay_core::addresses::Range;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

/// Most proxies in a row.
pub const MAX_HOPS: usize = 32;

/// How many bits of an IPv6 address make a key: what one customer is given at the least. Whoever has a /64 has 2⁶⁴
/// addresses.
const IPV6_PREFIX: u8 = 64;

/// The proxies that are ours, and where they write down whom they speak for. Only what they have added counts; what came
/// with a request counts for nothing.
#[derive(Clone)]
pub struct TrustedProxies {
    trust: Trust,
    peer: Option<PeerBy>,
    ipv6_prefix: u8,
}

type PeerBy = Arc<dyn Fn(Head<'_>) -> Option<IpAddr> + Send + Sync>;

#[derive(Clone)]
enum Trust {
    Nobody,
    Hops(ProxyHeader, usize),
    Ranges(ProxyHeader, Arc<[Range]>),
}

impl TrustedProxies {
    /// Nobody stands in between: requests come from the other end of their connection.
    pub fn none() -> Self {
        Self { trust: Trust::Nobody, peer: None, ipv6_prefix: IPV6_PREFIX }
    }

    /// So many of our own stand in between, one behind another, and nobody reaches us around them.
    pub fn hops(header: ProxyHeader, hops: usize) -> Result<Self> {
        if !(1..=MAX_HOPS).contains(&hops) {
            return Err(Error::invalid("hops", format!("are 1 to {MAX_HOPS}")));
        }
        Ok(Self { trust: Trust::Hops(header, hops), ..Self::none() })
    }

    /// Those in these ranges are our own: `10.0.0.0/8`, `fd00::1`. A request from elsewhere is taken for what it is,
    /// whatever its headers say.
    pub fn within<R: AsRef<str>>(header: ProxyHeader, ranges: impl IntoIterator<Item = R>) -> Result<Self> {
        let read =
            |range: R| range.as_ref().parse().map_err(|error| Error::invalid("proxies", format!("{error}")));
        let ranges: Vec<Range> = ranges.into_iter().map(read).collect::<Result<_>>()?;
        if ranges.is_empty() {
            return Err(Error::invalid("proxies", "are one range at least"));
        }
        Ok(Self { trust: Trust::Ranges(header, ranges.into()), ..Self::none() })
    }

    /// How the other end of the connection is known, instead of by a [`Peer`](super::Peer).
    pub fn peer_by(self, peer: impl Fn(Head<'_>) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self { peer: Some(Arc::new(peer)), ..self }
    }

    /// How many bits of an IPv6 address make a key, instead of 64; 128 for single addresses.
    pub fn ipv6_prefix(self, ipv6_prefix: u8) -> Result<Self> {
        if !(32..=128).contains(&ipv6_prefix) {
            return Err(Error::invalid("ipv6Prefix", "is 32 to 128"));
        }
        Ok(Self { ipv6_prefix, ..self })
    }

    /// Where a request comes from; nothing when that cannot be told.
    pub fn address(&self, head: Head<'_>) -> Option<IpAddr> {
        let peer = match &self.peer {
            Some(peer) => peer(head),
            None => head.peer(),
        };
        let peer = peer.map(|peer| peer.to_canonical());
        match &self.trust {
            Trust::Nobody => peer,
            Trust::Hops(header, hops) => walk(header, head, peer, |passed, _| passed < *hops),
            Trust::Ranges(header, ranges) => walk(header, head, peer, |_, address| {
                address.is_some_and(|address| ranges.iter().any(|range| range.contains(address)))
            }),
        }
    }

    /// Writes down the address, or the network of an IPv6 address; whether it could be told.
    pub(super) fn write(&self, head: Head<'_>, into: &mut String) -> bool {
        let written = match self.address(head) {
            Some(IpAddr::V6(address)) if self.ipv6_prefix < 128 => {
                write!(into, "{}", Range::new(address.into(), self.ipv6_prefix))
            }
            Some(address) => write!(into, "{address}"),
            None => return false,
        };
        written.is_ok()
    }
}

/// From the peer to the left, as long as it is one of our own who says so.
fn walk(
    header: &ProxyHeader,
    head: Head<'_>,
    peer: Option<IpAddr>,
    is_ours: impl Fn(usize, Option<IpAddr>) -> bool,
) -> Option<IpAddr> {
    let mut client = peer;
    for (passed, said) in header.last_first(head.headers).enumerate() {
        if !is_ours(passed, client) {
            return client;
        }
        if passed == MAX_HOPS {
            return None;
        }
        // One of our own speaks for somebody that it cannot name.
        client = Some(said?);
    }
    client
}
