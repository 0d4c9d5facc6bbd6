//! Composition root: opens the services of one store, connects, starts and stops them.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use mainstay_flows::commands::{Command, Commands, Decision, Handling};
//! use mainstay_runtime::Mainstay;
//! use std::time::Duration;
//!
//! let commands = Commands::new().on("Ping", async |_: Handling, number: i64| Ok(Decision::success(number, [])));
//! let app = Mainstay::on("sqlite::memory:").commands(commands).start().await?;
//! app.dispatch(Command::new("Ping", &7)?).await?;
//! app.stop(Duration::from_secs(5)).await?;
//! # Ok(()) }
//! ```
//!
//! # Lifecycle
//! 1. A [`Builder`] collects what the program defines.
//! 2. [`Builder::open`] opens every service. Nothing runs yet, and functions can be registered.
//! 3. [`Builder::start`] opens the services and starts the work engine and the projections.
//! 4. [`Mainstay::stop`] ends both and closes the store.
//!
//! A new service is one file of its own crate, and one line in [`Services`] and its `open`.

mod builder;
mod error;
mod handle;
mod mainstay;
mod services;

pub use builder::Builder;
pub use error::Error;
pub use handle::Handle;
pub use mainstay::Mainstay;
pub use services::{Services, components};
