//! The same work on several threads at once.

use std::sync::Barrier;
use std::time::{Duration, Instant};

/// How long it takes until all threads have done their share. All begin together.
pub fn side_by_side(threads: usize, share: &(dyn Fn(usize) + Sync)) -> Duration {
    let start = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let shares: Vec<_> = (0..threads)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let began = Instant::now();
                    share(thread);
                    (began, Instant::now())
                })
            })
            .collect();
        start.wait();
        let times: Vec<(Instant, Instant)> = shares.into_iter().flat_map(|share| share.join()).collect();
        let began = times.iter().map(|(began, _)| *began).min();
        let ended = times.iter().map(|(_, ended)| *ended).max();
        began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began)
    })
}
