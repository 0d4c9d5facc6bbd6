//! Customers, who order, change their minds, and now and then want what cannot be had.

use crate::Result;
use mainstay::flows::commands::Command;
use order_management::OrderManagement;
use order_management::inventory::{ProductCommand, Quantity, ReservationCommand};
use order_management::orders::{Customer, OrderCommand};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// What is sold, and for how much. The last is more than a card has.
const PRODUCTS: [(&str, i64); 6] = [
    ("lamp", 4_500),
    ("chair", 12_900),
    ("desk", 34_900),
    ("rug", 8_900),
    ("kettle", 3_900),
    ("piano", 1_200_000),
];
const PIANO: usize = PRODUCTS.len() - 1;
const CUSTOMERS: [&str; 8] = ["ada", "ben", "cleo", "dina", "emil", "fay", "gus", "hedy"];
/// More than there are.
const TOO_MANY: i64 = 500_000;
/// How many there are of each product of a season.
const STOCK: i64 = 100_000;
/// Whoever decides about a product reads what happened to it. So there are new products after so many orders.
const SEASON: u64 = 400;
/// Orders that are being placed at once; when there are more, customers wait.
const MOST_AT_ONCE: usize = 64;

/// What customer number n wants.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    customer: &'static str,
    /// Products and how many of each.
    lines: Vec<(usize, i64)>,
    /// An order that is wanted no more.
    cancels: Option<u64>,
    /// Whether somebody reserves for an order that does not exist: one read model cannot take that.
    is_poison: bool,
}

fn wish(number: u64) -> Wish {
    let first = (number % 5) as usize;
    let few = 1 + (number % 3) as i64;
    let lines = match number {
        _ if number % 13 == 7 => vec![(PIANO, 1)],
        _ if number % 17 == 9 => vec![(first, TOO_MANY)],
        _ if number.is_multiple_of(2) => vec![(first, few), ((first + 1) % 5, 1)],
        _ => vec![(first, few)],
    };
    Wish {
        customer: CUSTOMERS[(number % 8) as usize],
        lines,
        cancels: (number % 11 == 10).then(|| number.saturating_sub(8)),
        is_poison: number % 60 == 6,
    }
}

/// What customers do to a shop.
#[derive(Clone)]
pub(super) struct Traffic {
    app: Arc<OrderManagement>,
    /// What makes the ids of this run differ from those of others on the same store.
    run: u64,
    placed: Arc<AtomicU64>,
    ended: Arc<Notify>,
    drained: Arc<Notify>,
}

impl Traffic {
    pub(super) fn new(app: &Arc<OrderManagement>, run: u64) -> Self {
        Self { app: app.clone(), run, placed: Arc::default(), ended: Arc::default(), drained: Arc::default() }
    }

    /// How many orders were placed.
    pub(super) fn placed(&self) -> u64 {
        self.placed.load(Ordering::Relaxed)
    }

    /// Lets nobody order any more, and waits until those who do have done so.
    pub(super) async fn end(&self) {
        self.ended.notify_one();
        self.drained.notified().await;
    }

    /// What belongs to an order has this correlation id.
    pub(super) fn correlation(&self, number: u64) -> String {
        format!("corr_{}", self.order(number))
    }

    /// Lets customers order, so many in a second, until somebody ends it.
    pub(super) async fn flow(&self, per_second: u32) -> Result<()> {
        let mut ticks = interval(Duration::from_secs(1) / per_second);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut orders = JoinSet::new();
        for number in 0.. {
            if number % SEASON == 0 {
                self.begin_season(number / SEASON).await?;
            }
            tokio::select! {
                () = self.ended.notified() => break,
                _ = ticks.tick() => {}
            }
            while orders.len() >= MOST_AT_ONCE {
                drop(orders.join_next().await);
            }
            while orders.try_join_next().is_some() {}
            let traffic = self.clone();
            // A store that has too much to do says so: that customer comes another time.
            orders.spawn(async move { drop(traffic.order_something(number).await) });
        }
        while orders.join_next().await.is_some() {}
        self.drained.notify_one();
        Ok(())
    }

    fn order(&self, number: u64) -> String {
        format!("o{}-{number}", self.run)
    }

    fn product(&self, season: u64, product: usize) -> String {
        format!("{}-{}.{season}", PRODUCTS[product].0, self.run)
    }

    async fn begin_season(&self, season: u64) -> Result<()> {
        let correlation = format!("corr_season{}-{season}", self.run);
        for (index, (name, unit_price_cents)) in PRODUCTS.into_iter().enumerate() {
            let product_id = self.product(season, index);
            let (sku, quantity) = (format!("{}-{season}", name.to_uppercase()), STOCK);
            let create =
                ProductCommand::CreateProduct { product_id: product_id.clone(), sku, unit_price_cents };
            self.send(&correlation, &create).await?;
            self.send(&correlation, &ProductCommand::AddStock { product_id, quantity }).await?;
        }
        Ok(())
    }

    async fn order_something(&self, number: u64) -> Result<()> {
        let Wish { customer, lines, cancels, is_poison } = wish(number);
        let (order_id, correlation, season) = (self.order(number), self.correlation(number), number / SEASON);
        let create =
            OrderCommand::CreateOrder { order_id: order_id.clone(), customer_id: customer.to_owned() };
        self.send(&correlation, &create).await?;
        for (product, quantity) in lines {
            let (product_id, unit_price_cents) = (self.product(season, product), PRODUCTS[product].1);
            let order_id = order_id.clone();
            let add = OrderCommand::AddOrderItem { order_id, product_id, quantity, unit_price_cents };
            self.send(&correlation, &add).await?;
        }
        let (email, name) = (Some(format!("{customer}@example.org")), Some(customer.to_owned()));
        let customer = Customer { id: customer.to_owned(), name, email };
        self.send(&correlation, &OrderCommand::SubmitOrder { order_id, customer }).await?;
        self.placed.fetch_add(1, Ordering::Relaxed);
        if let Some(regretted) = cancels {
            let (order_id, reason) = (self.order(regretted), "found it cheaper".to_owned());
            let cancel = OrderCommand::CancelOrder { order_id, reason };
            self.send(&self.correlation(regretted), &cancel).await?;
        }
        if is_poison {
            self.reserve_for_nobody(number, season).await?;
        }
        Ok(())
    }

    async fn reserve_for_nobody(&self, number: u64, season: u64) -> Result<()> {
        let (order_id, reservation_id) =
            (format!("ghost{}-{number}", self.run), format!("g{}-{number}", self.run));
        let items = vec![Quantity { product_id: self.product(season, 0), quantity: 1 }];
        let correlation = format!("corr_{order_id}");
        self.send(&correlation, &ReservationCommand::ReserveStock { reservation_id, order_id, items }).await
    }

    async fn send(&self, correlation: &str, command: &impl Serialize) -> Result<()> {
        let command = Command::of(command)?.correlation(correlation);
        // A rejection is an answer: an order that was cancelled already, for one.
        Ok(self.app.mainstay().dispatch(command).await.map(drop)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_customers_want_all_that_there_is_to_see() {
        let wishes: Vec<Wish> = (0..30).map(wish).collect();
        assert!(wishes.iter().all(|wish| !wish.lines.is_empty()));
        assert!(wishes.iter().any(|wish| wish.lines.contains(&(PIANO, 1))), "one is declined");
        assert!(wishes.iter().any(|wish| wish.lines[0].1 == TOO_MANY), "one cannot be had");
        assert!(wishes.iter().any(|wish| wish.cancels == Some(2)), "one is regretted");
        assert!(wishes[..12].iter().any(|wish| wish.is_poison), "one is poison, within seconds");
    }

    #[test]
    fn most_customers_want_what_can_be_had_and_paid() {
        let odd = (0..1_000).map(wish).filter(|wish| wish.lines[0].0 == PIANO || wish.lines[0].1 == TOO_MANY);
        assert!((50..200).contains(&odd.count()));
        let poison = (0..1_000).map(wish).filter(|wish| wish.is_poison).count();
        assert!((10..20).contains(&poison), "{poison}");
    }

    #[test]
    fn there_is_enough_of_everything_for_a_season() {
        let sold = (0..SEASON).map(wish).flat_map(|wish| wish.lines).filter(|line| line.1 < TOO_MANY);
        assert!(sold.map(|line| line.1).sum::<i64>() < STOCK);
    }
}
