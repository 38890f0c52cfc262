//! Stores in Redis by TLS, with an authority and client certificates of the test.

#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

use crate::common::bench::{SECOND, wait};
use crate::common::certificates::{Authority, Signed};
use crate::common::process::{Process, all_are_acknowledged_once, ids, quick, runtime};
use crate::common::servers::{Cluster, Server, free_port};
use std::path::PathBuf;
use tourbillon_durable::{DurableError, Redis, RedisOptions, Tls};

/// The certificates of a server, in files.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, authority: &Authority) -> Self {
        let name = format!("tourbillon-tls-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let Signed { certificate, key } = authority.sign();
        let files = [("ca", &authority.certificate), ("cert", &certificate), ("key", &key)];
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Self(folder)
    }

    /// Returns the options of a server that demands client certificates.
    fn options(&self, port: u16) -> Vec<String> {
        let path = |name: &str| self.0.join(name).display().to_string();
        let pairs = [
            ("--tls-port", port.to_string()),
            ("--tls-ca-cert-file", path("ca")),
            ("--tls-cert-file", path("cert")),
            ("--tls-key-file", path("key")),
            ("--tls-auth-clients", "yes".to_owned()),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(files: &Files) -> Option<(Server, String)> {
    let port = free_port();
    let options = files.options(port);
    let server = Server::start(&options.iter().map(String::as_str).collect::<Vec<_>>())?;
    Some((server, format!("rediss://127.0.0.1:{port}/")))
}

fn mutual(authority: &Authority) -> Tls {
    let Signed { certificate, key } = authority.sign();
    Tls::new().authority(authority.certificate.as_str()).client_certificate(certificate, key)
}

#[test]
fn timers_go_through_tls_with_certificates_on_both_sides() {
    let authority = Authority::new();
    let files = Files::new("both", &authority);
    let Some((server, url)) = start(&files) else { return };
    let runtime = runtime();
    let options = RedisOptions::new("timers").tls(mutual(&authority));
    let store = runtime.block_on(Redis::connect(&url, options)).unwrap();
    let process = Process::of(store, runtime);
    let work = process.work();
    let all = ids(50);
    for id in &all {
        wait(process.timers.insert(id, "", SECOND, quick())).unwrap();
    }
    // Also the connections that replace broken ones.
    for kind in ["normal", "pubsub"] {
        assert!(server.say(&format!("CLIENT KILL TYPE {kind}")).is_some());
    }
    all_are_acknowledged_once(&process.timers, vec![work], all);
    #[cfg(feature = "log")]
    assert_eq!(wait(process.timers.attempt_log(Default::default()).latest(None, 1)), Ok(vec![]));
}

#[test]
fn a_certificate_that_is_not_trusted_is_refused_with_the_reason() {
    let (authority, another) = (Authority::new(), Authority::new());
    let files = Files::new("refused", &authority);
    let Some((_server, url)) = start(&files) else { return };
    let runtime = runtime();
    let refusal = |tls: Tls, reason: &str| {
        let options = RedisOptions::new("timers").tls(tls);
        let refused = runtime.block_on(Redis::connect(&url, options)).unwrap_err();
        let address = url.trim_start_matches("rediss://").trim_end_matches('/');
        assert!(
            matches!(&refused, DurableError::Tls(why) if why.contains(reason) && why.contains(address)),
            "{refused:?}"
        );
    };
    let Signed { certificate, key } = authority.sign();
    let wrong = Tls::new().authority(another.certificate.as_str());
    refusal(wrong.client_certificate(certificate, key), "UnknownIssuer");
    refusal(Tls::new().authority(authority.certificate.as_str()), "CertificateRequired");
    let Signed { certificate, key } = another.sign();
    let foreign = Tls::new().authority(authority.certificate.as_str());
    refusal(foreign.client_certificate(certificate, key), "UnknownCA");
    let broken = Tls::new().authority("-----BEGIN CERTIFICATE-----\nnone");
    refusal(broken, "certificate");
}

#[test]
fn certificates_need_an_address_with_tls() {
    let options = RedisOptions::new("timers").tls(Tls::new());
    let plain = runtime().block_on(Redis::connect("redis://127.0.0.1:1/", options)).unwrap_err();
    assert!(matches!(&plain, DurableError::Address(why) if why.contains("rediss")), "{plain:?}");
}

#[test]
fn the_nodes_that_a_cluster_lists_are_reached_by_tls() {
    let authority = Authority::new();
    let files = Files::new("cluster", &authority);
    let Some(cluster) = Cluster::with_tls(|port| files.options(port)) else { return };
    let runtime = runtime();
    let options = RedisOptions::new("timers").partitions(6).tls(mutual(&authority));
    let url = format!("rediss://127.0.0.1:{}/", cluster.nodes[0].tls_port().unwrap());
    let store = runtime.block_on(Redis::connect_cluster([url.as_str()], options)).unwrap();
    let process = Process::of(store, runtime);
    let work = process.work();
    let all = ids(50);
    for id in &all {
        wait(process.timers.insert(id, "", SECOND, quick())).unwrap();
    }
    all_are_acknowledged_once(&process.timers, vec![work], all);
    #[cfg(feature = "log")]
    assert_eq!(wait(process.timers.attempt_log(Default::default()).latest(None, 1)), Ok(vec![]));
}
