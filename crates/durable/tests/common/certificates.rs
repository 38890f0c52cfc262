//! An authority for TLS, and the certificates that it signs.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// An authority that a test creates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: String,
}

/// A certificate and its private key, in PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        // Two authorities of one name would be taken for each other.
        let key = KeyPair::generate().expect("a key");
        let name = format!("authority {:?}", &key.public_key_raw()[..8]);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("it signs itself").pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Signs a certificate for this host.
    pub(crate) fn sign(&self) -> Signed {
        self.sign_for("127.0.0.1")
    }

    /// Signs a certificate for a host or a user.
    pub(crate) fn sign_for(&self, name: &str) -> Signed {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a host");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("it is signed").pem();
        Signed { certificate, key: key.serialize_pem() }
    }
}
