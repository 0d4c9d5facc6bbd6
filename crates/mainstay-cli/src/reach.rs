//! The store when it is free, else the server that holds it.

use crate::arguments::Global;
use crate::remote::Remote;
use crate::verbs::refuse_missing;
use crate::{Error, Result, config};
use mainstay::store::{self, Store};

/// Where a verb does its work.
pub(crate) enum Reached {
    /// In the store, which this process holds now.
    Store(Store),
    /// At a server.
    Server(Remote),
}

impl Global {
    /// For whoever looks at what is there: makes no store where there is none.
    pub(crate) async fn reach_existing(&self) -> Result<Reached> {
        if self.server.is_none() {
            refuse_missing(&self.load()?)?;
        }
        self.reach().await
    }

    /// For what only a server does; `why` it is needed is told when there is none.
    pub(crate) async fn reach_server(&self, why: &str) -> Result<Remote> {
        match self.reach_existing().await? {
            Reached::Server(server) => Ok(server),
            Reached::Store(store) => {
                store.close().await;
                Err(Error::Argument(why.to_owned()))
            }
        }
    }

    /// Asks the server when one is named. Otherwise opens the store, and asks the server that holds it when that is a
    /// file that another process has.
    pub(crate) async fn reach(&self) -> Result<Reached> {
        let config = self.load()?;
        let token = self.token.as_ref().map(|token| token.0.clone());
        if let Some(url) = &self.server {
            return Remote::new(url, token, None).map(Reached::Server);
        }
        match config::store::options(&config).open().await {
            Ok(store) => Ok(Reached::Store(store)),
            Err(held @ store::Error::Owned { .. }) => {
                Remote::new(&config::server::url(&config), token, Some(held.to_string())).map(Reached::Server)
            }
            Err(error) => Err(Error::Store(error)),
        }
    }
}
