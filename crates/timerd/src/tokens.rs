//! The tokens of the API and the page. Only their hashes are kept, and they are compared in
//! constant time.

#![forbid(unsafe_code)]

use super::config::{Role, TokenHash};
use super::rights::Holder;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hex::FromHexError;
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

/// The length in characters of the shortest token that is not easy to guess.
const SHORT: usize = 16;

/// Texts that are not secret: examples in the documentation, and the expansion of a variable that
/// is not set.
const KNOWN: [&str; 6] = ["", "\n", "sesame", "sesame\n", "TOKEN", "$TOKEN"];

type Hash = [u8; 32];

/// The accepted tokens.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Vec<Token>);

#[derive(Debug)]
struct Token {
    holder: Holder,
    hash: Hash,
    /// Stands for the token in cookies.
    mark: String,
}

/// A random token of 256 bits.
#[derive(Debug)]
pub struct NewToken {
    /// The token.
    pub text: String,
    /// Its SHA-256 in hexadecimal digits, for the configuration.
    pub sha256: String,
}

/// The reason why a token is refused at start, with the name of the token.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TokenError {
    /// There is no token.
    Missing,
    /// The token is empty.
    Blank(String),
    /// A header cannot have some of the token's characters.
    Characters(String),
    /// The token is published or empty.
    Known(String),
    /// The hash of the token cannot be parsed.
    Hash(String, FromHexError),
    /// The name of a token is empty.
    Unnamed,
    /// Two tokens have this name.
    NameTwice(String),
    /// Tokens of two names are the same.
    Same(String, String),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let create = "create another one with `timerd token`";
        match self {
            Self::Missing => f.write_str("there is no token (expected at least one)"),
            Self::Blank(name) => write!(f, "the token {name:?} is empty; {create}"),
            Self::Characters(name) => {
                write!(f, "the token {name:?} has characters other than ASCII; {create}")
            }
            Self::Known(name) => {
                write!(f, "the token {name:?} is not secret, as it is published or empty; {create}")
            }
            Self::Hash(name, error) => write!(
                f,
                "the sha256 of the token {name:?}: {error} (expected 64 hexadecimal digits)"
            ),
            Self::Unnamed => f.write_str("a token has an empty name (expected one of its own)"),
            Self::NameTwice(name) => {
                write!(f, "two tokens have the name {name:?} (expected one of its own for each)")
            }
            Self::Same(name, other) => {
                write!(f, "the tokens {name:?} and {other:?} are the same; {create}")
            }
        }
    }
}

impl std::error::Error for TokenError {}

impl Tokens {
    /// Reads the hashes of a configuration.
    pub(crate) fn new(hashes: &[TokenHash]) -> Result<Self, TokenError> {
        let mut tokens = Self::default();
        for TokenHash { name, sha256, role } in hashes {
            let mut hash = Hash::default();
            hex::decode_to_slice(sha256, &mut hash)
                .map_err(|error| TokenError::Hash(name.clone(), error))?;
            tokens.accept(name, hash, *role)?;
        }
        Ok(tokens)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Accepts another token, which may do everything.
    pub(crate) fn add(&mut self, name: &str, text: &str) -> Result<(), TokenError> {
        let token = trimmed(text);
        if token.is_empty() {
            return Err(TokenError::Blank(name.to_owned()));
        }
        // A header cannot have other characters.
        if !token.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(TokenError::Characters(name.to_owned()));
        }
        self.accept(name, hash(token), Role::Operate)?;
        if token.len() < SHORT {
            tracing::warn!(name, "the token is shorter than {SHORT} characters and can be guessed");
        }
        Ok(())
    }

    fn accept(&mut self, name: &str, hash: Hash, role: Role) -> Result<(), TokenError> {
        if name.trim().is_empty() {
            return Err(TokenError::Unnamed);
        }
        if KNOWN.iter().any(|known| self::hash(known) == hash) {
            return Err(TokenError::Known(name.to_owned()));
        }
        for token in &self.0 {
            if *token.holder.name == *name {
                return Err(TokenError::NameTwice(name.to_owned()));
            }
            if token.hash == hash {
                return Err(TokenError::Same(token.holder.name.to_string(), name.to_owned()));
            }
        }
        let mark = Sha256::new().chain_update("timerd mark\0").chain_update(hash).finalize();
        let holder = Holder { name: name.into(), role };
        self.0.push(Token { holder, hash, mark: hex::encode(&mark[..16]) });
        Ok(())
    }

    /// Returns the holder of a token from a header or a form if it is accepted. The duration
    /// depends neither on the contents of the token nor on its position in the list.
    pub(crate) fn holder_of(&self, text: &str) -> Option<&Holder> {
        let given = hash(trimmed(text));
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.hash.ct_eq(&given)) {
                found = Some(&token.holder);
            }
        }
        found
    }

    /// Returns the mark that stands for a token in cookies.
    pub(crate) fn mark_of(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|token| *token.holder.name == *name).map(|token| &*token.mark)
    }

    /// Returns the holder of the token with a mark.
    pub(crate) fn marked(&self, mark: &str) -> Option<&Holder> {
        self.0.iter().find(|token| token.mark == mark).map(|token| &token.holder)
    }
}

impl NewToken {
    /// Creates a random token.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot provide random numbers.
    pub fn random() -> Result<Self, getrandom::Error> {
        let text = random()?;
        let sha256 = hex::encode(hash(&text));
        Ok(Self { text, sha256 })
    }
}

/// Returns 256 random bits as text.
pub(crate) fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns a token without the white space around it, which files and forms add and headers remove.
fn trimmed(text: &str) -> &str {
    text.trim_ascii()
}

fn hash(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "deploy";

    fn token_hash(sha256: String) -> TokenHash {
        TokenHash { name: NAME.to_owned(), sha256, role: Role::Read }
    }

    fn name_of<'a>(tokens: &'a Tokens, text: &str) -> Option<&'a str> {
        tokens.holder_of(text).map(|holder| &*holder.name)
    }

    fn of_hash(text: &str) -> Result<Tokens, TokenError> {
        Tokens::new(&[token_hash(hex::encode(hash(text)))])
    }

    fn of_text(text: &str) -> Result<Tokens, TokenError> {
        let mut tokens = Tokens::default();
        tokens.add(NAME, text).map(|()| tokens)
    }

    #[test]
    fn what_is_absent_or_published_is_no_token() {
        for text in ["", " ", "\t\r\n", "sesame", " sesame\n", "$TOKEN"] {
            let refused = of_text(text).expect_err(text);
            assert!(matches!(refused, TokenError::Blank(_) | TokenError::Known(_)), "{text:?}");
        }
        for text in ["", "\n", "sesame", "TOKEN"] {
            assert_eq!(of_hash(text).expect_err(text), TokenError::Known(NAME.to_owned()));
        }
        assert!(matches!(of_text("geheimer Schlüssel"), Err(TokenError::Characters(_))));
        let placeholder = "<64 hexadecimal digits, from `timerd token`>".to_owned();
        let refused = Tokens::new(&[token_hash(placeholder)]);
        assert!(matches!(refused, Err(TokenError::Hash(..))));
    }

    #[test]
    fn a_token_has_a_name_of_its_own() {
        let mut tokens = of_text("the first token").expect("a token");
        assert_eq!(tokens.add(" ", "the second token"), Err(TokenError::Unnamed));
        let twice = tokens.add(NAME, "the second token");
        assert_eq!(twice, Err(TokenError::NameTwice(NAME.to_owned())));
        let same = tokens.add("other", "the first token");
        assert_eq!(same, Err(TokenError::Same(NAME.to_owned(), "other".to_owned())));
        tokens.add("other", "the second token").expect("another token");
        assert_eq!(name_of(&tokens, "the first token"), Some(NAME));
        assert_eq!(name_of(&tokens, "the second token"), Some("other"));
    }

    #[test]
    fn white_space_around_a_token_counts_nowhere() {
        for tokens in [of_text(" the first token\n"), of_hash("the first token")] {
            let tokens = tokens.expect("a token");
            for text in ["the first token", " the first token", "the first token\r\n"] {
                assert_eq!(name_of(&tokens, text), Some(NAME), "{text:?}");
            }
            for text in ["", " ", "the  first token", "the first toke"] {
                assert_eq!(name_of(&tokens, text), None, "{text:?}");
            }
        }
    }

    #[test]
    fn a_new_token_is_accepted_by_its_hash() {
        let NewToken { text, sha256 } = NewToken::random().expect("a token");
        let tokens = Tokens::new(&[token_hash(sha256)]);
        assert_eq!(name_of(&tokens.expect("tokens"), &text), Some(NAME));
        assert_ne!(NewToken::random().expect("another token").text, text);
    }
}
