//! The databases a store can live in. Each driver is a folder of its own; this file only chooses.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use crate::body::Body;
use crate::capabilities::Capabilities;
use crate::figures::Figures;
use crate::options::Manner;
use crate::wakeups::Hub;
use crate::{Error, Location, Options, Result};
use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "postgres")]
use {crate::Tx, std::future::Future};

/// The driver of an open store.
pub(crate) enum Driver {
    #[cfg(feature = "sqlite")]
    Sqlite(sqlite::Driver),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Driver),
}

impl Driver {
    pub(crate) async fn open(
        location: &Location,
        options: &Options,
        figures: &Arc<Figures>,
        hub: &Arc<Hub>,
    ) -> Result<Self> {
        match location {
            #[cfg(feature = "sqlite")]
            Location::Memory => sqlite::Driver::open(None, options, figures, hub).await.map(Self::Sqlite),
            #[cfg(feature = "sqlite")]
            Location::File(path) => {
                sqlite::Driver::open(Some(path), options, figures, hub).await.map(Self::Sqlite)
            }
            #[cfg(feature = "postgres")]
            Location::Postgres(url) => {
                postgres::Driver::open(url, options, figures, hub).await.map(Self::Postgres)
            }
            #[cfg(not(all(feature = "sqlite", feature = "postgres")))]
            other => Err(Error::Url {
                url: other.to_string(),
                reason: "this program was built without the driver for it".to_owned(),
            }),
        }
    }

    pub(crate) async fn transact(&self, body: Body, manner: Manner, under_way: i64) -> Result<()> {
        // Only SQLite asks who else is there, and a build may do without it.
        let _ = under_way;
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(driver) => driver.transact(body, manner.limit, under_way).await,
            #[cfg(feature = "postgres")]
            // Boxed, so that a transaction of SQLite, which is all done in microseconds, is not as large as this.
            Self::Postgres(driver) => Box::pin(driver.transact(body, manner)).await,
        }
    }

    pub(crate) async fn read(&self, body: Body, manner: Manner) -> Result<()> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(driver) => driver.read(body, manner.limit).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(driver) => Box::pin(driver.read(body, manner)).await,
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) async fn lend<T, F, Fut>(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        work: F,
    ) -> Result<postgres::Lent<T>>
    where
        F: FnOnce(Tx) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        match self {
            Self::Postgres(driver) => driver.lend(transaction, work).await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => Err(Error::StatementRefused(
                "a PostgreSQL transaction cannot be lent to a SQLite store".to_owned(),
            )),
        }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => Capabilities::SQLITE,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Capabilities::POSTGRES,
        }
    }

    /// Which of the two dialects the database speaks.
    pub(crate) fn is_postgres(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => true,
        }
    }

    /// The store opened well; what it made may stay.
    pub(crate) fn opened(&self) {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(driver) => driver.opened(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => {}
        }
    }

    pub(crate) async fn durability(&self) -> Result<String> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(driver) => Ok(driver.durability()),
            #[cfg(feature = "postgres")]
            Self::Postgres(driver) => driver.durability().await,
        }
    }

    /// Copies the database to a new file, while it is in use.
    pub(crate) async fn backup(&self, target: PathBuf) -> Result<()> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(driver) => driver.backup(target).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(driver) => {
                let url = driver.url().to_owned();
                crate::backup::blocking(move || postgres::dump(&url, &target)).await
            }
        }
    }

    /// What the database itself finds wrong with its files; nothing where it cannot be asked.
    pub(crate) async fn check_integrity(&self) -> Result<Option<Vec<String>>> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(driver) => driver.check_integrity().await.map(Some),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Ok(None),
        }
    }

    /// Empties the write-ahead log; false when reads did not let it happen.
    pub(crate) async fn empty_log(&self) -> Result<bool> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(driver) => driver.empty_log().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Ok(true),
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(driver) => driver.close().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(driver) => driver.close().await,
        }
    }
}
