//! What belongs together, from a command to the read models.

use mainstay_events::{Log, NewEvent};
use mainstay_flows::commands::{self, Command, Commands, ConflictRetry, Decision, Dispatcher, Handling};
use mainstay_flows::event_flow;
use mainstay_flows::projections::{self, Category, Model, Projection, Projections, Registry};
use mainstay_store::Tx;
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_testkit::time::{START_MS, VirtualTime};
use mainstay_work::{Functions, Work};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// `SubmitOrder` and `ConfirmOrder`, each with an event of its own.
fn shop() -> Commands {
    let happens = |event_type: &'static str| {
        move |_: Handling, order: u32| async move {
            Ok(Decision::success((), [NewEvent::new(event_type, &order)?.stream("Order", order.to_string())]))
        }
    };
    Commands::new().on("SubmitOrder", happens("OrderSubmitted")).on("ConfirmOrder", happens("OrderConfirmed"))
}

fn summary() -> Projection {
    Projection::new("orderSummary", Category::View)
        .on(["OrderSubmitted", "OrderConfirmed"])
        .each(async |_: Tx, _: Model, _: mainstay_events::Event| Ok(()))
}

struct Floor {
    log: Log,
    work: Work,
    dispatcher: Dispatcher,
    projections: Projections,
    time: VirtualTime,
}

impl Floor {
    async fn open(place: &Place) -> Self {
        let options = [
            mainstay_events::COMPONENT,
            mainstay_work::COMPONENT,
            commands::COMPONENT,
            projections::COMPONENT,
        ];
        let options = options.into_iter().fold(place.options(), mainstay_store::Options::component);
        let (store, time) = VirtualTime::open_with(place, options).await.unwrap();
        let (registry, commands) = (Registry::new().with(summary()), shop());
        let log = Log::open(&store).await.unwrap();
        let functions = Functions::new();
        let work = Work::open(&store, functions).await.unwrap();
        let dispatcher = Dispatcher::open(&log, &work, commands).await.unwrap();
        let projections = Projections::open(&store, &log, &work, registry).await.unwrap();
        Self { log, work, dispatcher, projections, time }
    }

    async fn caught_up(&self) {
        let head = self.log.head().await.unwrap();
        self.projections.wait_for("orderSummary", head, PATIENCE).await.unwrap();
    }

    async fn depth(&self, pool: &str) -> (u64, u64) {
        let depth = self.work.depth(pool).await.unwrap();
        (depth.pending, depth.running)
    }
}

#[test]
fn b_074_read_models_go_on_beside_retries_which_never_touch_their_pool() {
    for_each_store(async |place| {
        let floor = Floor::open(&place).await;
        let (scope, order) =
            ("tenant:t1:order:7", |id: String| Command::new("SubmitOrder", &7_u32).unwrap().id(id));
        let first = order("first".to_owned()).within(scope, 0).tenant("t1");
        floor.dispatcher.dispatch(first).await.unwrap();
        let engine = floor.work.start().await.unwrap();
        let projecting = floor.projections.start();
        for number in 0..20 {
            // Overtaken: each waits on the pool of retries, at a time that stands still.
            let late = order(format!("late-{number}")).within(scope, 0).tenant("t1");
            let sent = floor.dispatcher.dispatch(late.retrying(ConflictRetry::default())).await.unwrap();
            assert_eq!(sent.outcome.status(), "deferred");
            floor.dispatcher.dispatch(order(format!("plain-{number}"))).await.unwrap();
            floor.caught_up().await;
            assert_eq!(floor.depth("projectionPool").await, (0, 0));
        }
        assert_eq!(floor.depth("dcbRetryPool").await.0, 20);
        let status = floor.projections.status("orderSummary").await.unwrap();
        assert_eq!((status.events_processed, status.lag), (21, 0));
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// Sagas join with workflows; until then there are none to tell of.
#[test]
fn b_225_226_a_correlation_is_followed_from_its_commands_to_the_read_models() {
    for_each_store(async |place| {
        let floor = Floor::open(&place).await;
        for (command, correlation) in
            [("SubmitOrder", "corr-123"), ("SubmitOrder", "other"), ("ConfirmOrder", "corr-123")]
        {
            let command = Command::new(command, &7_u32).unwrap().correlation(correlation);
            floor.dispatcher.dispatch(command).await.unwrap();
            let projecting = floor.projections.start();
            floor.caught_up().await;
            projecting.stop(PATIENCE).await;
            floor.time.advance(1_000).await.unwrap();
        }
        let Floor { log, dispatcher, projections, .. } = &floor;
        let flow = event_flow(log, dispatcher, projections, "corr-123").await.unwrap();
        assert_eq!(flow.command.unwrap().command_type, "SubmitOrder", "the earliest");
        let commands: Vec<(&str, &str, i64)> =
            flow.commands.iter().map(|one| (&*one.command_type, &*one.status, one.created_at)).collect();
        let later = START_MS + 2_000;
        assert_eq!(commands, [("SubmitOrder", "executed", START_MS), ("ConfirmOrder", "executed", later)]);
        let events: Vec<(&str, u64, i64)> =
            flow.events.iter().map(|one| (&*one.event_type, one.global_position, one.timestamp)).collect();
        assert_eq!(events, [("OrderSubmitted", 1, START_MS), ("OrderConfirmed", 3, later)]);
        let updates: Vec<(&str, &str, i64)> = flow
            .projection_updates
            .iter()
            .map(|one| (&*one.projection_name, &*one.event_id, one.updated_at))
            .collect();
        let [submitted, confirmed] = [&*flow.events[0].event_id, &*flow.events[1].event_id];
        assert_eq!(updates, [("orderSummary", submitted, START_MS), ("orderSummary", confirmed, later)]);
        assert!(flow.dead_letters.is_empty() && flow.sagas.is_empty());
    });
}
