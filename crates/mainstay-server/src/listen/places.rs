//! Places of connections: how many are open at once, how many from one address, and a reserve for probes and admins.
//!
//! | a connection | gets |
//! |---|---|
//! | while there is room, from an address with fewer than its share | an ordinary place |
//! | any other | a place of the reserve: its request must come soon, is a probe or an admin's, and is its last |
//! | when the reserve is full | the reserved place of a connection that has sent no request yet |
//!
//! So half-open connections, however many, keep out ordinary requests at most, and those of one address only its own.

use mainstay_core::addresses::Range;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// One reserved place for so many ordinary ones.
const RESERVED_SHARE: usize = 32;
/// Fewest reserved places.
const LEAST_RESERVED: usize = 8;

/// Places of a server.
pub(crate) struct Places {
    most: usize,
    most_per_address: usize,
    reserve: usize,
    /// Addresses that speak for many clients, and have no share.
    proxies: Vec<Range>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    ordinary: usize,
    by_address: HashMap<IpAddr, usize>,
    /// The oldest first.
    reserved: Vec<(IpAddr, Arc<Reserved>)>,
}

/// Place of one connection, free again when this is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    address: IpAddr,
    reserved: Option<Arc<Reserved>>,
}

/// Place of the reserve.
#[derive(Default)]
struct Reserved {
    has_request: AtomicBool,
    evicted: Notify,
}

impl Places {
    pub(crate) fn new(most: usize, most_per_address: usize, proxies: Vec<Range>) -> Arc<Self> {
        let reserve = (most / RESERVED_SHARE).max(LEAST_RESERVED);
        Arc::new(Self { most, most_per_address, reserve, proxies, taken: Mutex::default() })
    }

    /// A place for a connection from this address; nothing when even the reserve is busy with requests.
    pub(crate) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let peer = peer.to_canonical();
        let address = network(peer);
        let has_share = !self.proxies.iter().any(|range| range.contains(peer));
        let mut taken = self.taken();
        let Taken { ordinary, by_address, reserved } = &mut *taken;
        let of_address = by_address.get(&address).copied().unwrap_or(0);
        if *ordinary < self.most && (!has_share || of_address < self.most_per_address) {
            *ordinary += 1;
            by_address.insert(address, of_address + 1);
            return Some(Place { places: self.clone(), address, reserved: None });
        }
        if reserved.len() >= self.reserve {
            let (_, evicted) = reserved.remove(evictable(reserved)?);
            evicted.evicted.notify_one();
        }
        let place = Arc::new(Reserved::default());
        reserved.push((address, place.clone()));
        Some(Place { places: self.clone(), address, reserved: Some(place) })
    }

    /// A change is whole before it can panic.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reserved place to be given to another: the oldest without a request, of the address that has most of them.
fn evictable(reserved: &[(IpAddr, Arc<Reserved>)]) -> Option<usize> {
    let waiting = || reserved.iter().enumerate().filter(|(_, (_, place))| !place.has_request());
    let of = |address: &IpAddr| waiting().filter(|(_, (other, _))| other == address).count();
    waiting().rev().max_by_key(|(_, (address, _))| of(address)).map(|(index, _)| index)
}

/// Address that is counted. An IPv6 client has all addresses of its network.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !(u128::MAX >> 64)).into(),
    }
}

impl Reserved {
    fn has_request(&self) -> bool {
        self.has_request.load(Ordering::SeqCst)
    }
}

impl Place {
    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved.is_some()
    }

    /// Notes that the connection has sent a request: its place is its own until it is answered.
    pub(crate) fn has_request(&self) {
        if let Some(reserved) = &self.reserved {
            reserved.has_request.store(true, Ordering::SeqCst);
        }
    }

    /// Ready when the place was given to another connection.
    pub(crate) async fn evicted(&self) {
        match &self.reserved {
            Some(reserved) => reserved.evicted.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(reserved) = &self.reserved {
            taken.reserved.retain(|(_, other)| !Arc::ptr_eq(other, reserved));
            return;
        }
        taken.ordinary -= 1;
        if let Some(count) = taken.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_beyond_its_share_gets_reserved_places_only_and_others_are_served() {
        let places = Places::new(10, 2, vec!["10.0.0.0/8".parse().unwrap()]);
        let (one, other) = (address("192.0.2.1"), address("::ffff:192.0.2.2"));
        let mut taken: Vec<Place> = (0..3).map(|_| places.take(one).unwrap()).collect();
        assert_eq!(taken.iter().map(Place::is_reserved).collect::<Vec<_>>(), [false, false, true]);
        assert!(!places.take(other).unwrap().is_reserved());
        taken.remove(0);
        assert!(!places.take(one).unwrap().is_reserved(), "a place that is left is free");
        let proxied: Vec<Place> = (0..9).map(|_| places.take(address("10.1.1.1")).unwrap()).collect();
        assert!(proxied.iter().all(|place| !place.is_reserved()), "a proxy has no share");
        assert!(places.take(other).unwrap().is_reserved(), "all ordinary places are taken");
        drop((taken, proxied));
        assert!(places.taken().by_address.is_empty() && places.taken().reserved.is_empty());
        let v6 = |end: u16| address(&format!("2001:db8:1:2::{end:x}"));
        let networks: Vec<Place> = (0..3).map(|end| places.take(v6(end)).unwrap()).collect();
        assert!(networks[2].is_reserved(), "a client has all addresses of its network");
    }

    #[test]
    fn a_full_reserve_gives_the_place_of_the_address_that_has_most_and_sent_no_request() {
        let places = Places::new(1, 1, Vec::new());
        let ordinary = places.take(address("192.0.2.9")).unwrap();
        let quiet = places.take(address("192.0.2.2")).unwrap();
        let flood: Vec<Place> =
            (1..LEAST_RESERVED).map(|_| places.take(address("192.0.2.1")).unwrap()).collect();
        flood[0].has_request();
        let late = places.take(address("192.0.2.3")).unwrap();
        let evicted = |place: &Place| place.evicted().now_or_never().is_some();
        assert!(late.is_reserved() && evicted(&flood[1]), "the oldest that has sent nothing");
        assert!(!evicted(&quiet) && !evicted(&flood[0]) && !evicted(&ordinary));
        for place in flood[2..].iter().chain([&quiet, &late]) {
            place.has_request();
        }
        assert!(places.take(address("192.0.2.4")).is_none(), "all of the reserve are being answered");
    }
}
