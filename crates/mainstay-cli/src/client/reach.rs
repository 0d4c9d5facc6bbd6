//! Whom a verb asks: a server, or the routes in this process.

use super::{Call, Client, Remote};
use crate::arguments::Global;
use crate::audited::user;
use crate::services::{self, Opening};
use crate::verbs::refuse_missing;
use crate::{Error, Result, config};
use mainstay::store;
use mainstay_server::Local;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// Time limit of a call in this process: none that a caller at a terminal would notice. Ctrl-C ends it.
const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

impl Global {
    /// Makes a call.
    pub(crate) async fn send<T: DeserializeOwned>(&self, opening: Opening, call: Call) -> Result<T> {
        self.ask(opening, async |client| client.send(call).await).await
    }

    /// Makes a call of a server; `why` one is needed is told when none runs.
    pub(crate) async fn send_to_server<T: DeserializeOwned>(&self, why: &str, call: Call) -> Result<T> {
        self.ask_server(why, async |server| server.send(call).await).await
    }

    /// Does something with the API.
    pub(crate) async fn ask<T>(
        &self,
        opening: Opening,
        act: impl AsyncFnOnce(&Client) -> Result<T>,
    ) -> Result<T> {
        let client = self.client(opening).await?;
        let done = act(&client).await;
        client.close().await;
        done
    }

    /// Does what only a running server can do; `why` one is needed is told when there is none.
    pub(crate) async fn ask_server<T>(
        &self,
        why: &str,
        act: impl AsyncFnOnce(&Client) -> Result<T>,
    ) -> Result<T> {
        let act = async |client: &Client| match client {
            Client::Server(_) => act(client).await,
            Client::Local(_) => Err(Error::Argument(why.to_owned())),
        };
        self.ask(Opening::Existing, act).await
    }

    /// The server that is named. Otherwise the store, or the server that holds it when it is a file that another process has.
    async fn client(&self, opening: Opening) -> Result<Client> {
        let config = self.load()?;
        let remote = |url: &str, because| {
            let token = self.token.as_ref().map(|token| token.0.clone());
            Ok(Client::Server(Arc::new(Remote::new(url, token, because)?)))
        };
        if let Some(url) = &self.server {
            return remote(url, None);
        }
        if opening.is_of_existing() {
            refuse_missing(&config)?;
        }
        let store = match config::store::options(&config).open().await {
            Ok(store) => store,
            Err(held @ store::Error::Owned { .. }) => {
                return remote(&config::server::url(&config), Some(held.to_string()));
            }
            Err(error) => return Err(Error::Store(error)),
        };
        match services::open_for_a_verb(&config, &store, opening).await {
            Ok(services) => {
                let options = config::server::local(&config).request_timeout(LIMIT);
                Ok(Client::Local(Arc::new(Local::new(options, services, user()))))
            }
            Err(error) => {
                store.close().await;
                Err(error)
            }
        }
    }
}
