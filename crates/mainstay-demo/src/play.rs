//! Lets the shop run, and tells what happens.

use super::changes::changes;
use super::health::Health;
use super::look::{Look, look};
use super::operator::Operator;
use super::proof::{self, Circuit, Ended, Facts, Orders, Payments};
use super::schedule::Schedule;
use super::screen::{Kind, Screen};
use super::stage::{Places, Stage};
use super::tally::Tally;
use super::tour;
use super::traffic::Traffic;
use crate::{Error, Failure, Result};
use mainstay::store::Options;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// How often it is looked how everything is; sooner where the cycle is short.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// After so many cycles there is nothing new to be seen.
const MOST_CYCLES: u32 = 3;
/// How long what is under way may take after the last order, besides a cycle.
const SETTLING: Duration = Duration::from_secs(20);

/// How long it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until somebody has enough.
    Stopped,
    /// For so long.
    Elapsed(Duration),
    /// Until everything was to be seen.
    AllSeen,
}

/// What is wanted.
pub struct Plan {
    /// The shop's store, with everything that a server needs.
    pub shop: Options,
    /// How the store is called.
    pub store: String,
    /// Where to listen; at the usual place or at a free one unless given.
    pub listen: Option<SocketAddr>,
    /// Orders in a second.
    pub rate: u32,
    /// How long the provider takes from well to well again.
    pub cycle: Duration,
    /// How long it runs.
    pub until: Until,
    /// How it is shown.
    pub screen: Kind,
}

/// Plays, with what the services keep in a folder, until `stop` is ready or all was played.
pub async fn play(plan: Plan, folder: &Path, stop: impl Future<Output = ()>) -> Result<Facts> {
    let file = |name: &str| format!("sqlite:{}", folder.join(name).display());
    let places = Places {
        shop: plan.shop.clone(),
        notifications: Options::new(file("notifications.db")),
        books: file("provider.db"),
    };
    let schedule = Schedule::new(plan.cycle);
    let stage = Stage::open(places, plan.listen, plan.cycle).await?;
    let played = Play::begin(&plan, &stage, schedule).await?.run(stop).await;
    let closed = stage.close().await;
    let facts = played?;
    closed?;
    Ok(facts)
}

/// A shop that runs.
struct Play<'a> {
    plan: &'a Plan,
    stage: &'a Stage,
    schedule: Schedule,
    began: Instant,
    /// Where the log was when it began.
    from: u64,
    screen: Screen,
    traffic: Traffic,
    tally: Tally,
    health: Health,
    operator: Operator,
    last: Option<Look>,
}

impl<'a> Play<'a> {
    async fn begin(plan: &'a Plan, stage: &'a Stage, schedule: Schedule) -> Result<Self> {
        let from = stage.app.mainstay().log().head().await?;
        let (mut screen, traffic) = (Screen::new(plan.screen), Traffic::new(&stage.app, from));
        screen.say(&tour::opening(stage, &plan.store, schedule, &traffic.correlation(0)))?;
        let began = Instant::now();
        stage.provider.begin()?;
        Ok(Self {
            plan,
            stage,
            schedule,
            began,
            from,
            screen,
            traffic,
            tally: Tally::default(),
            health: Health::default(),
            operator: Operator::new(schedule),
            last: None,
        })
    }

    /// Everything at once: customers, those who count, and whoever looks at it.
    async fn run(mut self, stop: impl Future<Output = ()>) -> Result<Facts> {
        let log = self.stage.app.mainstay().log().clone();
        let counting = self.tally.clone().follow(log, self.from);
        let asking = self.health.clone().follow(self.stage.url.clone(), self.tick());
        let (traffic, rate) = (self.traffic.clone(), self.plan.rate);
        let flowing = async {
            traffic.flow(rate).await?;
            // Whoever has enough is not asked again.
            std::future::pending::<Result<()>>().await
        };
        tokio::select! {
            ended = counting => ended.and(Err(ended_early())),
            () = asking => Err(ended_early()),
            ended = flowing => ended.and(Err(ended_early())),
            facts = self.watch(stop) => facts,
        }
    }

    fn tick(&self) -> Duration {
        LOOK_EVERY.min(self.schedule.part(40))
    }

    async fn watch(&mut self, stop: impl Future<Output = ()>) -> Result<Facts> {
        let mut stop = pin!(stop);
        let mut ticks = interval(self.tick());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let is_stopped = loop {
            tokio::select! {
                () = &mut stop => break true,
                _ = ticks.tick() => {}
            }
            let seen = self.look().await?;
            if self.is_over(&seen) {
                break false;
            }
        };
        let seconds = self.began.elapsed().as_secs_f64();
        // Customers who are being served hold on to the shop, which is closed afterwards.
        self.traffic.end().await;
        self.stage.provider.calm()?;
        // Whoever has enough does not want to wait for the rest.
        let ended = if is_stopped {
            Ended::Stopped
        } else {
            tokio::select! {
                () = &mut stop => Ended::Stopped,
                ended = self.settle() => ended?,
            }
        };
        self.conclude(seconds, ended).await
    }

    /// Waits until everything that is under way is finished.
    async fn settle(&mut self) -> Result<Ended> {
        self.screen.note(self.began.elapsed(), "no more orders; what is under way is finished")?;
        let deadline = Instant::now() + self.plan.cycle + SETTLING;
        let mut ticks = interval(self.tick());
        while Instant::now() < deadline {
            ticks.tick().await;
            if self.look().await?.is_settled() && self.is_quiet().await? {
                return Ok(Ended::Settled);
            }
        }
        Ok(Ended::Late)
    }

    fn is_over(&self, seen: &Look) -> bool {
        match self.plan.until {
            Until::Stopped => false,
            Until::Elapsed(duration) => seen.elapsed >= duration,
            Until::AllSeen => proof::is_all_seen(seen) || seen.elapsed >= self.plan.cycle * MOST_CYCLES,
        }
    }

    /// Whether nothing has happened since it was looked last: an event may have been on its way between two looks.
    async fn is_quiet(&self) -> Result<bool> {
        let head = self.stage.app.mainstay().log().head().await?;
        Ok(self.last.as_ref().is_some_and(|last| last.head == head) && self.tally.position() == head)
    }

    /// Looks at everything, tells what has changed, and lets the operator do what is to be done.
    async fn look(&mut self) -> Result<Look> {
        let seen = look(self.stage, &self.tally, self.began.elapsed()).await?;
        let seen = Look { health: self.health.now(), ..seen };
        for change in changes(self.last.as_ref(), &seen) {
            self.screen.note(seen.elapsed, &change)?;
        }
        let letters = self.stage.app.mainstay().dead_letters();
        let sight = (seen.weather, seen.circuit, seen.letters.pending);
        if let Some(retried) = self.operator.tend(letters, sight).await? {
            self.screen
                .note(seen.elapsed, &format!("the operator lets dead letters be tried again: {retried}"))?;
        }
        self.screen.show(&seen)?;
        self.last = Some(seen.clone());
        Ok(seen)
    }

    async fn conclude(&mut self, seconds: f64, ended: Ended) -> Result<Facts> {
        let seen = self.look().await?;
        let log = self.stage.app.mainstay().log();
        let books = self.stage.provider.books().await?;
        let differences = proof::differences(log, &books.payments, self.from).await?;
        let (opened, closed) = seen.changes;
        let facts = Facts {
            url: self.stage.url.clone(),
            store: self.plan.store.clone(),
            seconds,
            ended,
            events: seen.head,
            orders: Orders {
                placed: self.traffic.placed(),
                confirmed: seen.count.confirmed,
                cancelled: seen.count.cancelled,
            },
            payments: Payments {
                completed: seen.count.completed,
                declined: seen.count.declined,
                refunded: seen.count.refunded,
                calls: books.calls,
                failed_calls: books.failed,
                charged: books.payments.len() as u64,
                differences,
            },
            circuit: Circuit { opened, closed },
            letters: seen.letters,
            quarantined: seen.quarantined,
            health: self.health.ever(),
            claims: proof::claims(&seen, differences),
        };
        self.screen.say(&tour::closing(&facts))?;
        Ok(facts)
    }
}

fn ended_early() -> Error {
    Failure::Broken("a part of the demo has ended by itself".to_owned()).into()
}
