//! The address of a store in a file, Redis or PostgreSQL, and how to open it.

#![forbid(unsafe_code)]

use crate::api::timers::DurableTimers;
use crate::embedded::Embedded;
use crate::error::DurableError;
use crate::postgres::{Postgres, PostgresOptions};
use crate::redis::{Redis, RedisOptions};
use crate::store::options::StoreOptions;
use crate::store::tls::Tls;
use clap::Args;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;

/// The default name of a store on a server.
const NAME: &str = "timers";

/// The address of a store.
///
/// | address | store |
/// |---|---|
/// | `timers.db`, `file:timers.db` | a file |
/// | `redis://user:password@host:6379/0`, `rediss://…` | one node |
/// | `cluster:redis://a/,redis://b/` | a cluster, by some of its nodes |
/// | `sentinel:redis://mymaster/,redis://s1:26379/,…` | the master of that name, and its sentinels |
/// | `postgres://user:password@host:5432/database?sslmode=require` | a schema in PostgreSQL |
///
/// `#name` at the end of the address of a server is the name of the store, by default `timers`.
/// With `#name:64` a store in Redis is created with 64 partitions if it does not exist.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::text::{Address, AddressError};
///
/// let address: Address = "redis://user:secret@redis.internal/#reminders".parse()?;
/// assert_eq!(address.label(), "reminders");
/// assert_eq!(format!("{address:?}"), "Redis(\"reminders\")"); // the password is not shown
/// assert_eq!(
///     "http://example.org".parse::<Address>(),
///     Err(AddressError::Scheme("http".to_owned())),
/// );
/// # Ok::<(), AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// A file on this machine.
    File(PathBuf),
    /// One or several Redis servers.
    Redis {
        /// The kind of the deployment.
        servers: Servers,
        /// The name of the store.
        name: String,
        /// The number of partitions, if the store is created.
        partitions: Option<u16>,
    },
    /// A PostgreSQL server.
    Postgres {
        /// The address of the server and the database.
        url: String,
        /// The name of the store and of its schema.
        name: String,
    },
}

/// Shows the kind and the name of the store, without its servers, whose addresses may contain
/// passwords.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::File(_) => "File",
            Self::Redis { .. } => "Redis",
            Self::Postgres { .. } => "Postgres",
        };
        f.debug_tuple(kind).field(&self.label()).finish()
    }
}

/// The text of an address before it is parsed. It may contain a password, so neither its
/// [`Debug`](fmt::Debug) output nor an error shows it.
#[derive(Clone)]
pub struct AddressText(String);

impl AddressText {
    /// Parses the address.
    ///
    /// # Errors
    ///
    /// Fails if the text is not the address of a store.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::text::{Address, AddressText};
    ///
    /// let text = AddressText::from("file:timers.db".to_owned());
    /// assert_eq!(text.parse()?, Address::File("timers.db".into()));
    /// assert_eq!(format!("{text:?}"), "AddressText(…)");
    /// # Ok::<(), tourbillon_durable::text::AddressError>(())
    /// ```
    pub fn parse(&self) -> Result<Address, AddressError> {
        self.0.parse()
    }
}

impl From<String> for AddressText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for AddressText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressText(…)")
    }
}

/// The error of a text that is not the address of a store. It does not show the text, which may
/// contain a password.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// The text names no file.
    Empty,
    /// No store has this scheme.
    Scheme(String),
    /// The text after `#NAME:` is not a number of partitions.
    Partitions,
    /// There is no sentinel after the master.
    Sentinels,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid address of a store: ")?;
        match self {
            Self::Empty => f.write_str("expected the address of a store"),
            Self::Scheme(scheme) => write!(
                f,
                "{scheme}:// is not a store (expected a file, redis://, rediss:// or postgres://)"
            ),
            Self::Partitions => f.write_str("expected #NAME or #NAME:PARTITIONS at the end"),
            Self::Sentinels => f.write_str("expected a master and at least one sentinel"),
        }
    }
}

impl Error for AddressError {}

/// The servers of a store in Redis.
#[derive(Clone, PartialEq, Eq)]
pub enum Servers {
    /// One node.
    Node(String),
    /// Some nodes of a cluster.
    Cluster(Vec<String>),
    /// The name of a master, and the sentinels that watch it.
    Sentinel {
        /// The address whose host is the name of the master.
        master: String,
        /// The addresses of the sentinels.
        sentinels: Vec<String>,
    },
}

/// Shows the kind of the deployment.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node(_) => "Node",
            Self::Cluster(_) => "Cluster",
            Self::Sentinel { .. } => "Sentinel",
        })
    }
}

/// The future that opens a store. Its type is erased. Otherwise programs that await it within
/// several of their own futures would exceed the compiler's limit on nested types.
pub type Opening<'a> =
    Pin<Box<dyn Future<Output = Result<DurableTimers, DurableError>> + Send + 'a>>;

/// The arguments that name a store.
///
/// # Examples
///
/// A program that inserts a timer with the arguments of its command line:
///
/// ```
/// use clap::Parser;
/// use tourbillon_durable::text::{Settings, StoreArguments, show_time};
///
/// #[derive(Parser)]
/// struct Arguments {
///     #[command(flatten)]
///     store: StoreArguments,
///     #[command(flatten)]
///     settings: Settings,
/// }
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-text-{}", std::process::id()));
/// # let path = file.to_str().ok_or("not UTF-8")?;
/// # let line = ["program", "--store", path, "--at", "2090-01-01T09:00[Europe/Berlin]"];
/// let arguments = Arguments::parse_from(line);
/// let address = arguments.store.store.as_ref().ok_or("expected --store")?.parse()?;
/// let (when, options) = arguments.settings.read()?;
/// pollster::block_on(async {
///     let timers = arguments.store.open(&address).await?;
///     timers.insert("order 7", "unpaid", when, options).await?;
///     let timer = timers.get("order 7").await?.ok_or("there is no timer")?;
///     assert_eq!(show_time(timer.due), "2090-01-01T08:00:00.000Z");
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Args, Clone, Debug)]
pub struct StoreArguments {
    /// The store: a file, `redis://…`, `rediss://…`, `cluster:URL,URL`, `sentinel:MASTER,URL,URL`
    /// or `postgres://…`. The address of a server may end with `#NAME`, and in Redis with
    /// `#NAME:PARTITIONS`
    #[arg(
        long,
        global = true,
        env = "TIMERS_STORE",
        hide_env_values = true,
        help_heading = "Store"
    )]
    pub store: Option<AddressText>,
    /// The role that owns a store in PostgreSQL, if it is neither the connected role, nor a role
    /// that the connected role is a member of, nor a superuser
    #[arg(long, global = true, env = "TIMERS_OWNER", value_name = "ROLE", help_heading = "Store")]
    pub owner: Option<String>,
    /// The authorities to trust for TLS instead of the platform's (PEM)
    #[arg(
        long,
        global = true,
        env = "TIMERS_TLS_AUTHORITY",
        value_name = "FILE",
        help_heading = "Store"
    )]
    pub tls_authority: Option<PathBuf>,
    /// The client certificate for TLS (PEM)
    #[arg(
        long,
        global = true,
        env = "TIMERS_TLS_CERTIFICATE",
        value_name = "FILE",
        help_heading = "Store",
        requires = "tls_key"
    )]
    pub tls_certificate: Option<PathBuf>,
    /// The private key of the client certificate (PEM)
    #[arg(
        long,
        global = true,
        env = "TIMERS_TLS_KEY",
        value_name = "FILE",
        help_heading = "Store",
        requires = "tls_certificate"
    )]
    pub tls_key: Option<PathBuf>,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (kind, rest) = text.split_once(':').unwrap_or(("", text));
        let (place, fragment) = text.split_once('#').unwrap_or((text, NAME));
        if matches!(kind, "postgres" | "postgresql") {
            return Ok(Self::Postgres { url: place.to_owned(), name: fragment.to_owned() });
        }
        if !matches!(kind, "redis" | "rediss" | "redis+unix" | "unix" | "cluster" | "sentinel") {
            let path = if kind == "file" { rest } else { text };
            return if path.is_empty() {
                Err(AddressError::Empty)
            } else if path.contains("://") {
                Err(AddressError::Scheme(kind.to_owned()))
            } else {
                Ok(Self::File(path.into()))
            };
        }
        let (name, partitions) = match fragment.split_once(':') {
            None => (fragment, None),
            Some((name, number)) => {
                (name, Some(number.parse().map_err(|_| AddressError::Partitions)?))
            }
        };
        let servers = match place.split_once(':') {
            Some(("cluster", urls)) => Servers::Cluster(split(urls)),
            Some(("sentinel", urls)) => {
                let mut urls = split(urls).into_iter();
                let master = urls.next().unwrap_or_default();
                let sentinels: Vec<String> = urls.collect();
                if sentinels.is_empty() {
                    return Err(AddressError::Sentinels);
                }
                Servers::Sentinel { master, sentinels }
            }
            _ => Servers::Node(place.to_owned()),
        };
        Ok(Self::Redis { servers, name: name.to_owned(), partitions })
    }
}

fn split(urls: &str) -> Vec<String> {
    urls.split(',').map(str::to_owned).collect()
}

impl Address {
    /// Returns the label of the store in metrics and logs, which is its name or, for a file, its
    /// path.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Redis { name, .. } | Self::Postgres { name, .. } => name.clone(),
        }
    }

    /// Returns `true` if the store is a file that does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::File(path) if !path.exists())
    }
}

impl StoreArguments {
    /// Opens a store, or creates it if it does not exist. A store on a server needs a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// Fails as the constructors of the stores do, or if a certificate cannot be read.
    pub fn open<'a>(&'a self, address: &'a Address) -> Opening<'a> {
        self.open_with(address, StoreOptions::new())
    }

    /// Opens a store like [`open`](Self::open), with options.
    ///
    /// # Errors
    ///
    /// Fails like [`open`](Self::open).
    pub fn open_with<'a>(&'a self, address: &'a Address, options: StoreOptions) -> Opening<'a> {
        Box::pin(self.open_now(address, options))
    }

    async fn open_now(
        &self,
        address: &Address,
        store: StoreOptions,
    ) -> Result<DurableTimers, DurableError> {
        let (servers, options) = match address {
            Address::File(path) => {
                return DurableTimers::spawn(Embedded::open_with(path, store)?);
            }
            Address::Postgres { url, name } => {
                let options = self.in_postgres(name).store(store);
                let options = match self.tls()? {
                    Some(tls) => options.tls(tls),
                    None => options,
                };
                return DurableTimers::spawn(Postgres::connect(url, options).await?);
            }
            Address::Redis { servers, name, partitions } => {
                let options = RedisOptions::new(name).store(store);
                (servers, partitions.map_or(options.clone(), |number| options.partitions(number)))
            }
        };
        let options = match self.tls()? {
            Some(tls) => options.tls(tls),
            None => options,
        };
        let store = match servers {
            Servers::Node(url) => Redis::connect(url, options).await,
            Servers::Cluster(urls) => {
                Redis::connect_cluster(urls.iter().map(String::as_str), options).await
            }
            Servers::Sentinel { master, sentinels } => {
                let sentinels = sentinels.iter().map(String::as_str);
                Redis::connect_sentinel(master, sentinels, options).await
            }
        }?;
        DurableTimers::spawn(store)
    }

    /// Returns the options of a store in PostgreSQL.
    #[must_use]
    pub fn in_postgres(&self, name: &str) -> PostgresOptions {
        let options = PostgresOptions::new(name);
        match &self.owner {
            Some(role) => options.owner(role),
            None => options,
        }
    }

    /// Reads the certificates, or returns `None` if the platform's authorities suffice.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read.
    pub fn tls(&self) -> Result<Option<Tls>, DurableError> {
        let Self { tls_authority, tls_certificate, tls_key, .. } = self;
        if tls_authority.is_none() && tls_certificate.is_none() {
            return Ok(None);
        }
        let mut tls = Tls::new();
        if let (Some(certificate), Some(key)) = (tls_certificate, tls_key) {
            tls = tls.client_certificate(read(certificate)?, read(key)?);
        }
        if let Some(authority) = tls_authority {
            tls = tls.authority(read(authority)?);
        }
        Ok(Some(tls))
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, DurableError> {
    std::fs::read(path).map_err(|error| DurableError::Tls(format!("{}: {error}", path.display())))
}
