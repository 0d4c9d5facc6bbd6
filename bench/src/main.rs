//! `cargo run --release -- store [sqlite|postgres|long-read]`: Mainstay and its peers doing the same work in one run.

mod store;

fn main() -> anyhow::Result<()> {
    // What the store warns of belongs to what is measured.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    let runtime = tokio::runtime::Runtime::new()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["store"] => runtime.block_on(async {
            store::sqlite::run().await?;
            store::postgres::run().await
        }),
        ["store", "sqlite"] => runtime.block_on(store::sqlite::run()),
        ["store", "postgres"] => runtime.block_on(store::postgres::run()),
        ["store", "long-read"] => runtime.block_on(store::long_read::run(10)),
        _ => anyhow::bail!("usage: mainstay-bench store [sqlite|postgres|long-read]"),
    }
}
