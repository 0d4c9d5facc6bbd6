//! PostgreSQL.
use anyhow::Result;
pub async fn run() -> Result<()> {
    Ok(())
}
