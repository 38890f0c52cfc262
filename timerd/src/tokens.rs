//! The tokens of the API. Only their hashes are kept, and they are compared in constant time.

#![forbid(unsafe_code)]

use super::config::TokenHash;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The tokens that are accepted.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Vec<Token>);

#[derive(Debug)]
struct Token {
    name: String,
    hash: [u8; 32],
}

impl Tokens {
    /// Reads the hashes of a configuration.
    pub(crate) fn new(hashes: &[TokenHash]) -> Result<Self, String> {
        let tokens = hashes.iter().map(|token| {
            let mut hash = [0; 32];
            hex::decode_to_slice(&token.sha256, &mut hash).map_err(|error| {
                format!(
                    "the sha256 of the token {:?}: {error} (expected 64 hexadecimal digits)",
                    token.name
                )
            })?;
            Ok(Token { name: token.name.clone(), hash })
        });
        tokens.collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Accepts another token.
    pub(crate) fn add(&mut self, name: &str, token: &str) {
        self.0.push(Token { name: name.to_owned(), hash: hash(token) });
    }

    /// Returns the name of a token that is accepted. The time that it takes depends neither on the
    /// contents of the token nor on its place.
    pub(crate) fn name_of(&self, token: &str) -> Option<&str> {
        let given = hash(token);
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.hash.ct_eq(&given)) {
                found = Some(&*token.name);
            }
        }
        found
    }
}

/// Creates a random token of 256 bits.
pub(crate) fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
