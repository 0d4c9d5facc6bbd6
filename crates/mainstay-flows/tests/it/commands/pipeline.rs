//! What a command passes before it is decided.

use super::house::{Diary, House, order, rejected, shop};
use mainstay_flows::commands::middleware::{Authorisation, Domain, Logging, Structure};
use mainstay_flows::commands::pipeline::{Flow, Middleware, Step};
use mainstay_flows::commands::{Issued, Outcome};
use mainstay_testkit::stores::for_each_store;

/// A step that notes when it runs.
struct Noting {
    name: &'static str,
    order: u16,
    diary: Diary,
    then: fn() -> Result<Flow, String>,
}

impl Middleware for Noting {
    fn name(&self) -> &str {
        self.name
    }

    fn order(&self) -> u16 {
        self.order
    }

    fn before<'a>(&'a self, _: &'a Issued) -> Step<'a, Flow> {
        Box::pin(async {
            self.diary.note(format!("before {}", self.name));
            (self.then)()
        })
    }

    fn after<'a>(&'a self, _: &'a Issued, outcome: &'a Outcome) -> Step<'a, ()> {
        Box::pin(async {
            self.diary.note(format!("after {} {}", self.name, outcome.status()));
            Err("is only reported".to_owned())
        })
    }
}

fn go_on() -> Result<Flow, String> {
    Ok(Flow::Continue)
}

#[test]
fn b_274_steps_run_in_the_order_of_their_numbers_and_are_told_in_reverse() {
    for_each_store(async |place| {
        let diary = Diary::default();
        let noting = |name, order| Noting { name, order, diary: diary.clone(), then: go_on };
        let commands = shop(&diary)
            .with(noting("limit", 50))
            .with(noting("structure", 10))
            .with(noting("authorisation", 30));
        let house = House::open_with(&place, commands, diary).await;
        house.send("PlaceOrder", 1).await.unwrap();
        assert_eq!(
            house.diary.entries(),
            [
                "before structure",
                "before authorisation",
                "before limit",
                "PlaceOrder",
                "after limit success",
                "after authorisation success",
                "after structure success",
            ]
        );
    });
}

#[test]
fn b_275_a_step_that_stops_ends_the_way_and_those_that_ran_are_told() {
    for_each_store(async |place| {
        let diary = Diary::default();
        let noting = |name, order, then| Noting { name, order, diary: diary.clone(), then };
        let stop = || Ok(Flow::reject("CLOSED", "come back tomorrow"));
        let commands = shop(&diary)
            .with(noting("a", 10, go_on))
            .with(noting("b", 20, stop))
            .with(noting("c", 30, go_on));
        let house = House::open_with(&place, commands, diary.clone()).await;
        let stopped = house.dispatcher.dispatch(order("PlaceOrder", 1).id("cmd-1")).await.unwrap();
        assert_eq!(rejected(&stopped), "CLOSED");
        assert_eq!(house.diary.entries(), ["before a", "before b", "after a rejected"]);
        let missing = house.dispatcher.status("cmd-1").await.unwrap_err();
        assert_eq!(missing.code(), "COMMAND_NOT_FOUND", "it may be sent again");
    });
}

#[test]
fn b_275_every_step_has_its_code() {
    for_each_store(async |place| {
        let diary = Diary::default();
        let commands = shop(&diary)
            .with(Logging)
            .with(Structure::new(|issued| match issued.payload.get().contains("13") {
                true => Err("thirteen".to_owned()),
                false => Ok(()),
            }))
            .with(Domain::new(async |issued: Issued| match issued.payload.get() {
                r#"{"id":14}"# => Ok(Err("fourteen".to_owned())),
                r#"{"id":15}"# => Err("cannot ask".to_owned()),
                _ => Ok(Ok(())),
            }))
            .with(Authorisation::any_of([
                Authorisation::role("admin"),
                Authorisation::all_of([
                    Authorisation::role("clerk"),
                    Authorisation::owner(|_| Some("ada".to_owned())),
                ]),
            ]));
        let house = House::open_with(&place, commands, diary).await;
        let send = async |id, roles: &[&str], user: &str| {
            let command = roles.iter().fold(order("PlaceOrder", id), |command, role| command.role(*role));
            house.dispatcher.dispatch(command.user(user)).await
        };
        assert_eq!(rejected(&send(13, &["admin"], "ada").await.unwrap()), "VALIDATION_ERROR");
        assert_eq!(rejected(&send(14, &["admin"], "ada").await.unwrap()), "DOMAIN_VALIDATION_ERROR");
        assert_eq!(send(15, &["admin"], "ada").await.unwrap_err().code(), "MIDDLEWARE_ERROR");
        for (roles, user) in [(&["guest"][..], "ada"), (&["clerk"], "bob"), (&[], "ada")] {
            assert_eq!(rejected(&send(1, roles, user).await.unwrap()), "UNAUTHORIZED");
        }
        assert!(house.diary.entries().is_empty());
        assert_eq!(send(1, &["admin"], "bob").await.unwrap().outcome.status(), "success");
        assert_eq!(send(2, &["clerk"], "ada").await.unwrap().outcome.status(), "success");
        let broken = order("BreakOrder", 3).role("admin").user("ada");
        assert_eq!(house.dispatcher.dispatch(broken).await.unwrap_err().code(), "HANDLER_ERROR");
    });
}

#[test]
fn b_275_a_step_that_panics_is_an_error_of_that_step() {
    for_each_store(async |place| {
        let diary = Diary::default();
        let panics = Noting { name: "bad", order: 10, diary: diary.clone(), then: || panic!("on purpose") };
        let house = House::open_with(&place, shop(&diary).with(panics), diary).await;
        let error = house.send("PlaceOrder", 1).await.unwrap_err();
        assert_eq!((error.code(), error.to_string().contains("on purpose")), ("MIDDLEWARE_ERROR", true));
    });
}
