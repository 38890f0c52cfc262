//! Signatures of calls, by [Standard Webhooks](https://www.standardwebhooks.com).
//!
//! The crate `standardwebhooks` signs only UTF-8, and copies each body into a text. Tests compare
//! these signatures with its own.

#![forbid(unsafe_code)]

use crate::config::SecretTexts;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The name of the default secret of timers.
const DEFAULT: &str = "default";

/// Example secrets of Standard Webhooks. They are published, and so known to all.
const KNOWN: [&str; 2] = ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];

/// The secrets of the configuration by name.
pub(crate) struct Secrets(BTreeMap<String, Arc<Secret>>);

/// The keys of a receiver, newest first. There are several while the secret is rotated.
pub(crate) struct Secret(Vec<Hmac<Sha256>>);

/// The reason why a secret is refused, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretError {
    /// The list of the secret's keys is empty.
    Empty(String),
    /// The secret has another form.
    Form(String),
    /// The secret is published.
    Known(String),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty(name) => {
                write!(f, "the secret {name:?} is an empty list (expected at least one)")
            }
            Self::Form(name) => {
                write!(f, "the secret {name:?} must be whsec_ and 24 to 64 bytes in base64")
            }
            Self::Known(name) => write!(
                f,
                "the secret {name:?} is a published example; create another one with \
                 `echo whsec_$(openssl rand -base64 32)`"
            ),
        }
    }
}

impl Error for SecretError {}

impl Secrets {
    /// Returns the secret with this name, or the default secret.
    pub(crate) fn get(&self, name: Option<&str>) -> Option<Arc<Secret>> {
        self.0.get(name.unwrap_or(DEFAULT)).cloned()
    }
}

/// Parses secrets of the form `whsec_…`, with the key in base64.
impl TryFrom<&SecretTexts> for Secrets {
    type Error = SecretError;

    fn try_from(texts: &SecretTexts) -> Result<Self, SecretError> {
        let secrets = texts.0.iter().map(|(name, secrets)| {
            let keys = secrets.as_slice().iter().map(|secret| key(name, secret));
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            if keys.is_empty() {
                return Err(SecretError::Empty(name.clone()));
            }
            Ok((name.clone(), Arc::new(Secret(keys))))
        });
        Ok(Self(secrets.collect::<Result<_, _>>()?))
    }
}

/// Parses one of the keys of the secret with this name.
fn key(name: &str, secret: &str) -> Result<Hmac<Sha256>, SecretError> {
    let wrong = || SecretError::Form(name.to_owned());
    let key = secret.strip_prefix("whsec_").ok_or_else(wrong)?;
    let key = STANDARD.decode(key).map_err(|_| wrong())?;
    if !(24..=64).contains(&key.len()) {
        return Err(wrong());
    }
    if KNOWN.iter().any(|known| STANDARD.decode(known).as_ref() == Ok(&key)) {
        return Err(SecretError::Known(name.to_owned()));
    }
    Hmac::new_from_slice(&key).map_err(|_| wrong())
}

impl Secret {
    /// Returns the value of `webhook-signature`, which has a signature for each key. A receiver
    /// accepts a call if it knows one of the keys.
    pub(crate) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let signatures = self.0.iter().map(|key| {
            let mut hmac = key.clone();
            hmac.update(format!("{id}.{timestamp}.").as_bytes());
            hmac.update(body);
            format!("v1,{}", STANDARD.encode(hmac.finalize().into_bytes()))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_Tm90IGEgc2VjcmV0LCBidXQgdGhhdCBvZiBhIHRlc3Q=";

    fn secrets(secret: &str) -> Result<Secrets, SecretError> {
        Secrets::try_from(&texts(&format!("default = {secret:?}")))
    }

    fn texts(toml: &str) -> SecretTexts {
        toml::from_str(toml).expect("texts")
    }

    #[test]
    fn a_call_is_signed_with_all_secrets_of_a_name_the_newest_first() {
        let other = format!("whsec_{}", STANDARD.encode([7; 32]));
        let signature = |secrets: &Secrets| {
            let secret = secrets.get(None).expect("the default");
            secret.sign("x", 1_614_265_330, b"body")
        };
        let rotated = texts(&format!("default = [{other:?}, {SECRET:?}]"));
        let secrets = Secrets::try_from(&rotated).expect("two secrets");
        let both = signature(&secrets);
        for (secret, signed) in
            [(&*other, both.split(' ').next()), (SECRET, both.split(' ').nth(1))]
        {
            let reference = standardwebhooks::Webhook::new(secret).expect("a secret");
            let theirs = reference.sign("x", 1_614_265_330, b"body").expect("a signature");
            assert_eq!(signed, Some(&*theirs));
        }
        for wrong in ["default = []".to_owned(), format!("default = [{SECRET:?}, \"whsec_\"]")] {
            assert!(Secrets::try_from(&texts(&wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn signatures_are_those_of_the_reference() {
        let reference = standardwebhooks::Webhook::new(SECRET).expect("a secret");
        let secrets = secrets(SECRET).expect("a secret");
        let secret = secrets.get(None).expect("the default");
        for (id, body) in [("1800000000000:order%207", ""), ("x", "{\"test\": 2432232314}")] {
            let theirs = reference.sign(id, 1_614_265_330, body.as_bytes()).expect("a signature");
            assert_eq!(secret.sign(id, 1_614_265_330, body.as_bytes()), theirs);
        }
    }

    #[test]
    fn secrets_are_checked_and_have_names() {
        let short = format!("whsec_{}", STANDARD.encode([7; 23]));
        let plain = SECRET.strip_prefix("whsec_").expect("the prefix");
        for wrong in ["", "whsec_", "whsec_!!!!", plain, &short] {
            assert!(secrets(wrong).is_err(), "{wrong}");
        }
        for known in KNOWN {
            let refused = secrets(&format!("whsec_{known}")).err();
            assert_eq!(refused, Some(SecretError::Known("default".to_owned())));
        }
        let secrets = secrets(SECRET).expect("a secret");
        assert!(secrets.get(Some("default")).is_some() && secrets.get(Some("other")).is_none());
    }
}
