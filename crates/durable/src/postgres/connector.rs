//! [`Connector`], which opens the connections to the server, by TLS or not.

#![forbid(unsafe_code)]

#[cfg(feature = "postgres-tls")]
use super::tls::connector;
use crate::error::DurableError;
use crate::store::credentials::{Credentials, Values};
#[cfg(feature = "postgres-tls")]
use crate::store::tls::Tls;
use deadpool_postgres::Connect;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{MakeTlsConnect, NoTls, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Error, Socket};
#[cfg(feature = "postgres-tls")]
use {
    tokio_postgres::config::SslNegotiation, tokio_postgres::error::SqlState,
    tokio_postgres_rustls::MakeRustlsConnect,
};

/// The messages of a connection, which makes progress while they are polled. They end with it.
pub(super) type Messages = BoxStream<'static, AsyncMessage>;

/// Opens connections with a configuration.
///
/// | `sslmode` | the connection |
/// |---|---|
/// | `disable` | without TLS |
/// | `prefer` | by TLS if the server offers it and the handshake succeeds, otherwise without |
/// | `require` | by TLS |
///
/// A certificate that is not trusted, or names another host, fails the handshake in any mode.
#[derive(Clone)]
pub(super) struct Connector {
    /// The credentials that override a configuration's.
    credentials: Option<Credentials>,
    #[cfg(feature = "postgres-tls")]
    tls: Option<MakeRustlsConnect>,
}

impl Connector {
    /// Returns the connector for a configuration. With certificates, the mode `prefer` becomes
    /// `require`. Fails if the mode is `disable`, although there are certificates.
    #[cfg(feature = "postgres-tls")]
    pub(super) fn new(config: &mut Config, tls: Option<&Tls>) -> Result<Self, DurableError> {
        let tls = match (config.get_ssl_mode(), tls) {
            (SslMode::Disable, None) => None,
            (SslMode::Disable, Some(_)) => {
                let what = "the options have certificates, and the address has `sslmode=disable`";
                return Err(DurableError::Address(what.to_owned()));
            }
            (_, None) => Some(connector(&Tls::new())?),
            (_, Some(tls)) => {
                config.ssl_mode(SslMode::Require);
                Some(connector(tls)?)
            }
        };
        Ok(Self { credentials: None, tls })
    }

    /// Returns the connector for a configuration. Fails if the configuration needs TLS.
    #[cfg(not(feature = "postgres-tls"))]
    pub(super) fn new(config: &mut Config) -> Result<Self, DurableError> {
        if config.get_ssl_mode() == SslMode::Require {
            let what = "`sslmode=require` needs the feature `postgres-tls` of `tourbillon-durable`";
            return Err(DurableError::Address(what.to_owned()));
        }
        Ok(Self { credentials: None })
    }

    /// Sets credentials that override a configuration's.
    pub(super) fn credentials(mut self, credentials: Option<Credentials>) -> Self {
        self.credentials = credentials;
        self
    }

    /// Returns `true` if the credentials can change.
    pub(super) fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// Returns a configuration with the present credentials.
    fn signed_in(&self, config: &Config) -> Config {
        let mut config = config.clone();
        let Some(credentials) = &self.credentials else { return config };
        let Values { user, password, .. } = credentials.values();
        if !user.is_empty() {
            config.user(user);
        }
        config.password(password);
        config
    }

    /// Opens a connection.
    #[cfg(feature = "postgres-tls")]
    pub(super) async fn open(&self, config: &Config) -> Result<(Client, Messages), Error> {
        let config = &self.signed_in(config);
        let Some(tls) = &self.tls else { return with(config, NoTls).await };
        let refused = match with(config, tls.clone()).await {
            Err(error) if is_handshake(&error) => error,
            opened => return opened,
        };
        let may_be_plain = config.get_ssl_mode() == SslMode::Prefer
            && config.get_ssl_negotiation() == SslNegotiation::Postgres;
        if !may_be_plain {
            return Err(refused);
        }
        match with(config.clone().ssl_mode(SslMode::Disable), NoTls).await {
            // The server has no entry for connections without TLS.
            Err(error) if error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
                Err(refused)
            }
            opened => opened,
        }
    }

    /// Opens a connection.
    #[cfg(not(feature = "postgres-tls"))]
    pub(super) async fn open(&self, config: &Config) -> Result<(Client, Messages), Error> {
        with(&self.signed_in(config), NoTls).await
    }

    /// Asks the server to end the statement that a connection executes.
    #[cfg(feature = "log")]
    pub(super) async fn cancel(&self, client: &Client) {
        let token = client.cancel_token();
        #[cfg(feature = "postgres-tls")]
        if let Some(tls) = &self.tls {
            let _ = token.cancel_query(tls.clone()).await;
            return;
        }
        let _ = token.cancel_query(NoTls).await;
    }
}

impl Connect for Connector {
    fn connect(&self, config: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        let config = config.clone();
        Box::pin(async move {
            let (client, messages) = self.open(&config).await?;
            let reading = messages.for_each(|_| std::future::ready(()));
            Ok((client, tokio::spawn(reading)))
        })
    }
}

/// Returns `true` if the connection failed at the handshake of TLS.
pub(super) fn is_handshake(error: &Error) -> bool {
    error.to_string().starts_with("error performing TLS handshake")
}

async fn with<T>(config: &Config, tls: T) -> Result<(Client, Messages), Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let (client, mut connection) = config.connect(tls).await?;
    let messages = stream::poll_fn(move |context| connection.poll_message(context));
    let messages = messages.take_while(|message| std::future::ready(message.is_ok()));
    Ok((client, messages.filter_map(|message| std::future::ready(message.ok())).boxed()))
}
