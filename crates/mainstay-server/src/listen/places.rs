//! Places of connections: how many are open at once, how many from one address, and a reserve for probes and admins.
//!
//! | a connection | gets |
//! |---|---|
//! | while there is room, from an address with fewer than its share | an ordinary place |
//! | any other | a place of the reserve: its request must come soon, is a probe or an admin's, and is its last |
//! | when the reserve, or the share of its address in the reserve, is full | the reserved place of a connection with no admin's request |
//!
//! A reserved place is kept only while a request of an admin is answered. So connections without a token, however many and
//! whatever they send, keep out ordinary requests at most, and those of one address only its own.

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
/// One of so many reserved places is the share of an address.
const ADDRESS_SHARE: usize = 4;
/// Fewest reserved places of an address: its probes and an admin come at the same time.
const LEAST_OF_ADDRESS: usize = 4;

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
    reserved: Vec<(IpAddr, Reserved)>,
}

/// Place of one connection, free again when this is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    address: IpAddr,
    reserved: Option<Reserved>,
}

/// Place of the reserve. Requests that come over its connection carry it.
#[derive(Clone, Default)]
pub(crate) struct Reserved(Arc<State>);

#[derive(Default)]
struct State {
    is_kept: AtomicBool,
    evicted: Notify,
}

/// Places of the reserve beside so many ordinary ones.
pub(crate) fn reserve(most: usize) -> usize {
    (most / RESERVED_SHARE).max(LEAST_RESERVED)
}

/// Most ordinary places that have room together with their reserve; one, where not even that has.
pub(crate) fn most_within(descriptors: usize) -> usize {
    let beside_least = descriptors.saturating_sub(LEAST_RESERVED);
    beside_least.min(descriptors * RESERVED_SHARE / (RESERVED_SHARE + 1)).max(1)
}

impl Places {
    pub(crate) fn new(most: usize, most_per_address: usize, proxies: Vec<Range>) -> Arc<Self> {
        let reserve = reserve(most);
        Arc::new(Self { most, most_per_address, reserve, proxies, taken: Mutex::default() })
    }

    /// A place for a connection from this address; nothing when even the reserve is busy with requests of admins.
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
        let share = (self.reserve / ADDRESS_SHARE).max(LEAST_OF_ADDRESS);
        let is_at_share =
            has_share && reserved.iter().filter(|(other, _)| *other == address).count() >= share;
        if is_at_share || reserved.len() >= self.reserve {
            let (_, evicted) = reserved.remove(evictable(reserved, is_at_share.then_some(address))?);
            evicted.0.evicted.notify_one();
        }
        let place = Reserved::default();
        reserved.push((address, place.clone()));
        Some(Place { places: self.clone(), address, reserved: Some(place) })
    }

    /// A change is whole before it can panic.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reserved place to be given to another: the oldest that is not kept, of this address or of the one that has most of
/// them.
fn evictable(reserved: &[(IpAddr, Reserved)], address: Option<IpAddr>) -> Option<usize> {
    let free = || {
        let all = reserved.iter().enumerate().filter(|(_, (_, place))| !place.is_kept());
        all.filter(move |(_, (other, _))| address.is_none_or(|address| address == *other))
    };
    let of = |address: &IpAddr| free().filter(|(_, (other, _))| other == address).count();
    free().rev().max_by_key(|(_, (address, _))| of(address)).map(|(index, _)| index)
}

/// Address that is counted. An IPv6 client has all addresses of its network.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !(u128::MAX >> 64)).into(),
    }
}

impl Reserved {
    /// Keeps the place for this connection until its request is answered.
    pub(crate) fn keep(&self) {
        self.0.is_kept.store(true, Ordering::SeqCst);
    }

    fn is_kept(&self) -> bool {
        self.0.is_kept.load(Ordering::SeqCst)
    }
}

impl Place {
    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved.is_some()
    }

    /// The place, if it is one of the reserve.
    pub(crate) fn reserved(&self) -> Option<Reserved> {
        self.reserved.clone()
    }

    /// Ready when the place was given to another connection.
    pub(crate) async fn evicted(&self) {
        match &self.reserved {
            Some(reserved) => reserved.0.evicted.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(reserved) = &self.reserved {
            taken.reserved.retain(|(_, other)| !Arc::ptr_eq(&other.0, &reserved.0));
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

    #[test]
    fn as_many_places_as_have_room_with_their_reserve() {
        for descriptors in 10..5_000 {
            let most = most_within(descriptors);
            assert!(most + reserve(most) <= descriptors, "{descriptors}: {most}");
            assert!(
                most + 1 + reserve(most + 1) >= descriptors,
                "{descriptors}: {most} is less than there is room for"
            );
        }
        assert_eq!((most_within(1_056), most_within(0)), (1_024, 1));
    }
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

    fn is_evicted(place: &Place) -> bool {
        place.evicted().now_or_never().is_some()
    }

    fn keep(place: &Place) {
        place.reserved().unwrap().keep();
    }

    #[test]
    fn a_full_reserve_gives_the_oldest_place_of_the_address_that_has_most_unless_it_is_kept() {
        let places = Places::new(1, 1, Vec::new());
        let ordinary = places.take(address("192.0.2.9")).unwrap();
        let quiet = places.take(address("192.0.2.2")).unwrap();
        let flood: Vec<Place> =
            (0..LEAST_OF_ADDRESS).map(|_| places.take(address("192.0.2.1")).unwrap()).collect();
        let rest = LEAST_RESERVED - LEAST_OF_ADDRESS - 1;
        let others: Vec<Place> =
            (0..rest).map(|end| places.take(address(&format!("192.0.2.10{end}"))).unwrap()).collect();
        keep(&flood[0]);
        let late = places.take(address("192.0.2.3")).unwrap();
        assert!(late.is_reserved() && is_evicted(&flood[1]), "the oldest that is not kept");
        assert!(![&quiet, &flood[0], &ordinary].into_iter().any(is_evicted));
        for place in flood[2..].iter().chain(&others).chain([&quiet, &late]) {
            keep(place);
        }
        assert!(places.take(address("192.0.2.4")).is_none(), "all of the reserve serve admins");
    }

    #[test]
    fn an_address_at_its_share_of_the_reserve_loses_a_place_of_its_own() {
        let places = Places::new(1, 1, vec!["10.0.0.0/8".parse().unwrap()]);
        let _ordinary = places.take(address("192.0.2.9")).unwrap();
        let other = places.take(address("192.0.2.2")).unwrap();
        let own: Vec<Place> =
            (0..LEAST_OF_ADDRESS).map(|_| places.take(address("192.0.2.1")).unwrap()).collect();
        let next = places.take(address("192.0.2.1")).unwrap();
        assert!(is_evicted(&own[0]) && !is_evicted(&other), "its own, although the reserve has room");
        own[1..].iter().chain([&next]).for_each(keep);
        assert!(places.take(address("192.0.2.1")).is_none(), "its share serves admins");
        assert!(places.take(address("192.0.2.3")).is_some(), "others have theirs");
        drop((own, next, other));
        let proxied: Vec<_> = (0..LEAST_RESERVED).map(|_| places.take(address("10.0.0.1"))).collect();
        assert!(proxied.iter().all(Option::is_some), "a proxy has no share");
        assert!(!proxied.iter().flatten().any(is_evicted));
    }
}
