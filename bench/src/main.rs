//! `cargo run --release -- store [sqlite|postgres]`: Mainstay and its peers doing the same work in one run.

mod store;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["store"] => runtime.block_on(async {
            store::sqlite::run().await?;
            store::postgres::run().await
        }),
        ["store", "sqlite"] => runtime.block_on(store::sqlite::run()),
        ["store", "postgres"] => runtime.block_on(store::postgres::run()),
        _ => anyhow::bail!("usage: mainstay-bench store [sqlite|postgres]"),
    }
}
