//! Signatures of calls, by [Standard Webhooks](https://www.standardwebhooks.com).

#![forbid(unsafe_code)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::BTreeMap;

/// The secret of timers that name none.
const DEFAULT: &str = "default";

/// Secrets that are published as examples by Standard Webhooks, and so are known to all.
const KNOWN: [&str; 2] = ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];

/// The secrets of the configuration by their names.
#[derive(Default)]
pub(crate) struct Secrets(BTreeMap<String, Secret>);

/// The key of a receiver.
pub(crate) struct Secret(Hmac<Sha256>);

impl Secrets {
    /// Reads secrets of the form `whsec_…`, with the key in base64.
    pub(crate) fn new(secrets: &BTreeMap<String, String>) -> Result<Self, String> {
        let secrets = secrets.iter().map(|(name, secret)| {
            let wrong =
                || format!("the secret {name:?} must be whsec_ and 24 to 64 bytes in base64");
            let key = secret.strip_prefix("whsec_").ok_or_else(wrong)?;
            let key = STANDARD.decode(key).map_err(|_| wrong())?;
            if !(24..=64).contains(&key.len()) {
                return Err(wrong());
            }
            if KNOWN.iter().any(|known| STANDARD.decode(known).as_ref() == Ok(&key)) {
                return Err(format!(
                    "the secret {name:?} is a published example; create another one with \
                     `echo whsec_$(openssl rand -base64 32)`"
                ));
            }
            let hmac = Hmac::new_from_slice(&key).map_err(|_| wrong())?;
            Ok((name.clone(), Secret(hmac)))
        });
        secrets.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the secret of this name, or the default one.
    pub(crate) fn get(&self, name: Option<&str>) -> Option<&Secret> {
        self.0.get(name.unwrap_or(DEFAULT))
    }
}

impl Secret {
    /// Returns the value of `webhook-signature`.
    pub(crate) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let mut hmac = self.0.clone();
        hmac.update(format!("{id}.{timestamp}.").as_bytes());
        hmac.update(body);
        format!("v1,{}", STANDARD.encode(hmac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_Tm90IGEgc2VjcmV0LCBidXQgdGhhdCBvZiBhIHRlc3Q=";

    fn secrets(secret: &str) -> Result<Secrets, String> {
        Secrets::new(&BTreeMap::from([(DEFAULT.to_owned(), secret.to_owned())]))
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
            let refused = secrets(&format!("whsec_{known}")).err().expect("it is published");
            assert!(refused.contains("published"), "{refused}");
        }
        let secrets = secrets(SECRET).expect("a secret");
        assert!(secrets.get(Some("default")).is_some() && secrets.get(Some("other")).is_none());
    }
}
