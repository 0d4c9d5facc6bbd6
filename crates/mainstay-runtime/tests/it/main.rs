//! Services of a store as a program opens them.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

use mainstay_runtime::{Builder, components};
use mainstay_store::Options;
use mainstay_testkit::stores::for_each_store;
use std::time::Duration;

#[test]
fn pools_of_services_cannot_be_deleted_by_a_program_that_found_them() {
    for_each_store(async |place| {
        let open = async || components().into_iter().fold(place.options(), Options::component).open().await;
        // Another program declared the pools before.
        let store = open().await.unwrap();
        Builder::on_store(store.clone()).open().await.unwrap();
        let services = Builder::on_store(store.clone()).open().await.unwrap();
        let pools = services.work.pools().await.unwrap();
        assert!(pools.iter().any(|pool| pool.name == "deadLetterPool"), "{pools:?}");
        for pool in pools {
            let refused = services.work.delete_pool(&pool.name).await.expect_err(&pool.name);
            assert_eq!(refused.code(), "WORK_NAME_IN_USE", "{refused}");
        }
        let engine = services.work.start().await.unwrap();
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}
