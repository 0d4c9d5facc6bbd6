//! Mainstay and its peers doing the same work in one run. [`USAGE`] says which work there is.

mod events;
mod flows;
mod guards;
mod peers;
mod rounds;
mod store;
mod table;
mod work;

const USAGE: &str = "usage: mainstay-comparisons store [sqlite|postgres|long-read]
       mainstay-comparisons events [embedded|http|postgres|read|growth ...] [--seconds <n>]
       mainstay-comparisons work [postgres|sqlite|growth|delay|held ...] [--items <n>] [--seconds <n>, of held alone]
       mainstay-comparisons guards [memory|redis|store|circuits|layer ...]
       mainstay-comparisons flows [dispatch|replay|visible ...]";

/// As in the `mainstay` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    // What the store warns of belongs to what is measured.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    #[cfg(feature = "umadb")]
    if let [events::umadb::SERVE, address, folder] = arguments[..] {
        return events::umadb::serve(address, folder);
    }
    if let [events::mainstay::SERVE, folder] = arguments[..] {
        return events::mainstay::serve(folder);
    }
    if let [guards::resident::COUNT, who] = arguments[..] {
        return guards::resident::count(who);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    match arguments[..] {
        ["store"] => runtime.block_on(async {
            store::sqlite::run().await?;
            store::postgres::run().await
        }),
        ["store", "sqlite"] => runtime.block_on(store::sqlite::run()),
        ["store", "postgres"] => runtime.block_on(store::postgres::run()),
        ["store", "long-read"] => runtime.block_on(store::long_read::run(10)),
        ["events", ref contests @ ..] => runtime.block_on(events::run(contests)),
        ["work", ref contests @ ..] => runtime.block_on(work::run(contests)),
        ["guards", ref contests @ ..] => runtime.block_on(guards::run(contests)),
        ["flows", ref contests @ ..] => runtime.block_on(flows::run(contests)),
        _ => anyhow::bail!(USAGE),
    }
}
