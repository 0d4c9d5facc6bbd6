//! PostgreSQL: Mainstay against the same statements by hand on deadpool and tokio-postgres.

use super::{CALLERS, load};
use anyhow::Result;
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use mainstay_bench::load::{Load, Outcome};
use mainstay_bench::store::{self, INSERT_LINE, INSERT_ORDER, NOTE, key};
use mainstay_bench::table::Table;
use mainstay_store::Options;
use mainstay_testkit::postgres::Postgres;
use tokio_postgres::NoTls;

/// Connections for both sides: enough to share the server's flushes, few enough for two cores.
const CONNECTIONS: usize = 16;

/// Prints the table, on a server of its own with fsync on.
pub async fn run() -> Result<()> {
    let server = tokio::task::spawn_blocking(Postgres::private).await??;
    let database = server.database()?;
    let ours = Options::new(database.url()).connections(CONNECTIONS).open().await?;
    store::prepare(&ours).await?;
    println!("\n{}, {CONNECTIONS} connections each\n", ours.durability().await?);
    let pool = pool(database.url())?;

    let mut table = Table::new();
    for (run, callers) in (0..).zip(CALLERS) {
        // Two rounds each, in turns, so that neither side always comes after a checkpoint of the other.
        let mut rates = [0.0; 2];
        for round in 0..2 {
            let number = run * 10 + round;
            let theirs = by_hand(&pool, load(callers), number * 2).await;
            table.add("deadpool + tokio-postgres", &theirs, "");
            rates[0] += theirs.per_second();
            let mine = store::measure(&ours, load(callers), number * 2 + 1).await;
            rates[1] += mine.per_second();
            table.add("mainstay", &mine, &format!("{:.2}× by hand so far", rates[1] / rates[0]));
        }
    }
    println!("{}", table.render());
    ours.close().await;
    pool.close();
    tokio::task::spawn_blocking(move || drop((database, server))).await?;
    Ok(())
}

fn pool(url: &str) -> Result<Pool> {
    let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(url.parse()?, NoTls, config);
    Ok(Pool::builder(manager).max_size(CONNECTIONS).build()?)
}

async fn by_hand(pool: &Pool, load: Load, run: u64) -> Outcome {
    let pool = pool.clone();
    load.run(move |caller, number| {
        let pool = pool.clone();
        async move {
            let key = key(run, caller, number);
            let mut connection = pool.get().await?;
            let transaction = connection.transaction().await?;
            let statement = transaction.prepare_cached(INSERT_ORDER).await?;
            transaction.execute(&statement, &[&key, &(number as i64)]).await?;
            let statement = transaction.prepare_cached(INSERT_LINE).await?;
            transaction.execute(&statement, &[&key, &NOTE]).await?;
            transaction.commit().await?;
            Ok(())
        }
    })
    .await
}
