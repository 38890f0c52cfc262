//! Stores in PostgreSQL by TLS, with an authority and client certificates of the test.

#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

use crate::common::bench::{SECOND, wait};
use crate::common::certificates::{Authority, Signed};
use crate::common::postgres_server::PostgresServer;
use crate::common::process::{Process, Watch, ids, lateness, quick, runtime};
use std::time::SystemTime;
use tourbillon_durable::{DurableError, Postgres, PostgresOptions, Tls};

/// The user of the tests may come with or without TLS, `reader` only by TLS, and `clerk` only with
/// a certificate.
const ACCESS: &str = "host all postgres 127.0.0.1/32 trust
hostssl all reader 127.0.0.1/32 trust
hostssl all clerk 127.0.0.1/32 trust clientcert=verify-full
";

fn start(authority: &Authority) -> Option<PostgresServer> {
    let Signed { certificate, key } = authority.sign();
    let files = [&*certificate, &*key, &*authority.certificate];
    let server = PostgresServer::with_tls(files, ACCESS)?;
    server.order("create role clerk login superuser");
    server.order("create role reader login superuser");
    Some(server)
}

/// Returns the address of a server for a user.
fn url(server: &PostgresServer, user: &str, mode: &str) -> String {
    format!("postgres://{user}@127.0.0.1:{}/postgres?sslmode={mode}", server.port)
}

fn trusting(authority: &Authority) -> Tls {
    Tls::new().authority(authority.certificate.as_str())
}

fn options(tls: Tls) -> PostgresOptions {
    PostgresOptions::new("timers").tls(tls)
}

fn with_certificate(authority: &Authority, signed: Signed) -> Tls {
    trusting(authority).client_certificate(signed.certificate, signed.key)
}

fn refusal(url: &str, options: impl Into<PostgresOptions>) -> DurableError {
    runtime().block_on(Postgres::connect(url, options)).unwrap_err()
}

/// Checks that a connection is refused as one by TLS, with the address and a reason.
fn refuses(url: &str, options: impl Into<PostgresOptions>, reason: &str) {
    let refused = refusal(url, options);
    let is_told = |why: &str| why.contains("127.0.0.1:") && why.contains(reason);
    assert!(matches!(&refused, DurableError::Tls(why) if is_told(why)), "{reason}: {refused:?}");
}

/// The number of connections of stores that are encrypted or not, of listening connections or of
/// all.
fn connections(server: &PostgresServer, encrypted: bool, listening: bool) -> String {
    let listens = if listening { "query ilike 'listen%'" } else { "true" };
    server.order(&format!(
        "select count(*) from pg_stat_ssl join pg_stat_activity using (pid)
         where application_name = 'tourbillon' and {listens} and ssl = {encrypted}"
    ))
}

#[test]
fn timers_and_notices_go_through_tls_with_certificates_on_both_sides() {
    let authority = Authority::new();
    let Some(server) = start(&authority) else { return };
    let url = url(&server, "clerk", "require");
    let open = || {
        let signed = authority.sign_for("clerk");
        Process::in_schema(&url, options(with_certificate(&authority, signed)))
    };
    let (process, other) = (open(), open());
    let watch = Watch::over(&process);
    let listens = |server: &PostgresServer| connections(server, true, true) == "2";
    server.wait_for("those that listen", listens);
    // Also the connections that replace broken ones.
    assert!(server.cut() >= 4);
    server.wait_for("those that listen again", listens);
    let (all, begun) = (ids(50), SystemTime::now());
    for id in &all {
        wait(other.timers.insert(id, "", SECOND / 5, quick())).unwrap();
        std::thread::sleep(SECOND / 50);
    }
    let delivered: Vec<_> =
        all.iter().map(|_| watch.delivered.recv_timeout(60 * SECOND).unwrap()).collect();
    assert_eq!(connections(&server, false, false), "0");
    assert_ne!(connections(&server, true, false), "0");
    let (_, p99, worst) = lateness(&delivered, begun);
    assert!(p99 < SECOND, "without notices each is late by a second: {p99:?}, {worst:?}");
    assert_eq!(watch.stop(), []);
}

#[test]
fn a_certificate_that_is_not_trusted_is_refused_with_the_reason() {
    let (authority, another) = (Authority::new(), Authority::new());
    let Some(server) = start(&authority) else { return };
    let reader = url(&server, "reader", "require");
    refuses(&reader, "timers", "UnknownIssuer");
    refuses(&reader, options(trusting(&another)), "UnknownIssuer");
    let named = format!("host=another hostaddr=127.0.0.1 port={} user=reader", server.port);
    let refused = refusal(&named, options(trusting(&authority)));
    let is_told = |why: &str| why.contains("another:") && why.contains("not valid for name");
    assert!(matches!(&refused, DurableError::Tls(why) if is_told(why)), "{refused:?}");
    assert!(runtime().block_on(Postgres::connect(&reader, options(trusting(&authority)))).is_ok());
    let broken = Tls::new().authority("-----BEGIN CERTIFICATE-----\nnone");
    refuses(&reader, options(broken), "authority is invalid");
    refuses(&reader, options(Tls::new().authority("none")), "authority is invalid");
}

#[test]
fn a_client_certificate_that_is_demanded_must_be_that_of_the_user() {
    let (authority, another) = (Authority::new(), Authority::new());
    let Some(server) = start(&authority) else { return };
    let clerk = url(&server, "clerk", "require");
    let denied = |tls: Tls, reason: &str| {
        let refused = refusal(&clerk, options(tls));
        assert!(
            matches!(&refused, DurableError::Denied(why) if why.contains(reason)),
            "{refused:?}"
        );
    };
    denied(trusting(&authority), "valid client certificate");
    denied(with_certificate(&authority, authority.sign_for("porter")), "\"clerk\"");
    let foreign = with_certificate(&authority, another.sign_for("clerk"));
    refuses(&clerk, options(foreign), "UnknownCA");
    let Signed { certificate, .. } = authority.sign_for("clerk");
    let unmatched = Signed { certificate, key: "none".to_owned() };
    refuses(&clerk, options(with_certificate(&authority, unmatched)), "key");
    let signed = authority.sign_for("clerk");
    let accepted = Postgres::connect(&clerk, options(with_certificate(&authority, signed)));
    assert!(runtime().block_on(accepted).is_ok());
}

#[test]
fn the_mode_of_the_address_decides_whether_tls_is_used() {
    let authority = Authority::new();
    let (Some(server), Some(plain)) = (start(&authority), PostgresServer::start(&[])) else {
        return;
    };
    let runtime = runtime();
    let is_encrypted = |url: &str, options: PostgresOptions| {
        let store = runtime.block_on(Postgres::connect(url, options)).unwrap();
        let encrypted = connections(&server, true, false) != "0";
        assert_ne!(encrypted, connections(&server, false, false) != "0");
        drop(store);
        server.wait_for("the end of its connections", |server| {
            connections(server, true, false) == "0" && connections(server, false, false) == "0"
        });
        encrypted
    };
    let timers = || PostgresOptions::new("timers");
    for (mode, encrypted) in [("disable", false), ("prefer", true), ("require", true)] {
        let address = url(&server, "postgres", mode);
        if encrypted {
            assert!(is_encrypted(&address, options(trusting(&authority))), "{mode}");
        } else {
            let refused = refusal(&address, options(trusting(&authority)));
            let told = matches!(&refused, DurableError::Address(why) if why.contains("disable"));
            assert!(told, "{refused:?}");
            assert!(!is_encrypted(&address, timers()), "{mode}");
        }
    }
    let address = url(&server, "postgres", "prefer");
    assert!(!is_encrypted(&address, timers()), "its authority is not trusted");
    refuses(&url(&server, "postgres", "require"), timers(), "UnknownIssuer");
    refuses(&url(&server, "reader", "prefer"), timers(), "UnknownIssuer");
    refuses(&format!("{address}&sslnegotiation=direct"), timers(), "sslnegotiation=direct");
    refuses(&url(&plain, "postgres", "require"), timers(), "does not support TLS");
    let demands = options(trusting(&authority));
    refuses(&url(&plain, "postgres", "prefer"), demands, "does not support TLS");
    let store = runtime.block_on(Postgres::connect(&url(&plain, "postgres", "prefer"), timers()));
    assert!(store.is_ok());
}
