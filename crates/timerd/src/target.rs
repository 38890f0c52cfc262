//! [`Target`], a webhook that is ready to be called. Its request consists only of parsed parts, so
//! a [`Webhook`] that has become a target can always be sent.

#![forbid(unsafe_code)]

use super::webhook::{TimeLimitError, Webhook, parse_time_limit};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use rustls::pki_types::ServerName;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;
use url::{Host, Position, Url};

/// Headers that belong to the connection or to the service.
const RESERVED: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The prefix of headers that belong to the service.
const OWN: &str = "webhook-";

/// The maximum number of headers of a webhook. Many servers refuse more than 100 in a request.
const MAX_HEADERS: usize = 64;

/// The maximum total length in bytes of the headers of a webhook.
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// A webhook that can be called.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    /// The name in the certificate of the receiver, if it is called over TLS.
    pub(crate) tls: Option<ServerName<'static>>,
    pub(crate) time_limit: Option<Duration>,
    /// The name of the secret, unless it is the default.
    pub(crate) secret: Option<String>,
    pub(crate) body: Bytes,
    method: Method,
    /// The path and the query.
    uri: Uri,
    /// The value of the header `host`.
    authority: HeaderValue,
    /// The headers of the webhook, without the headers that the service sets.
    headers: HeaderMap,
    content_type: Option<&'static str>,
}

/// The reason why a webhook cannot be called.
#[derive(Debug)]
pub(crate) enum TargetError {
    /// The payload of a timer is not a webhook.
    Payload(serde_json::Error),
    /// The URL cannot be parsed.
    Url(String),
    /// The URL has no scheme, or an unsupported one.
    Scheme,
    /// The URL has a user name or a password.
    Credentials,
    Method,
    Timeout(TimeLimitError),
    Header {
        name: String,
        why: HeaderError,
    },
    /// There are too many headers.
    Headers,
}

/// The reason why a header cannot be sent.
#[derive(Debug)]
pub(crate) enum HeaderError {
    Name,
    Value,
    /// The service sets this header itself.
    Reserved,
    /// Another header has the same name in different case.
    Repeated,
}

impl Target {
    /// Reads a target from the payload of a timer.
    pub(crate) fn from_payload(payload: &[u8]) -> Result<Self, TargetError> {
        Webhook::from_payload(payload).map_err(TargetError::Payload)?.try_into()
    }

    /// Returns the same target with another body of the same type.
    pub(crate) fn with_body(&self, body: String) -> Self {
        Self { body: body.into(), ..self.clone() }
    }

    /// Returns the request. Headers of the webhook replace headers of the timer, and headers of the
    /// service replace both.
    pub(crate) fn request<'a>(
        &self,
        of_timer: impl Iterator<Item = (&'a str, &'a str)>,
        of_service: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        let name = concat!("timerd/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(name));
        if let Some(kind) = self.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        // Other programs may have written these headers. Headers that cannot be sent are left out.
        let stored = of_timer.flat_map(|(name, value)| checked_header(name, value));
        let own = self.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        let host = (HOST, self.authority.clone());
        for (name, value) in stored.chain(own).chain([host]).chain(of_service) {
            headers.insert(name, value);
        }
        request
    }
}

impl TryFrom<Webhook> for Target {
    type Error = TargetError;

    fn try_from(webhook: Webhook) -> Result<Self, TargetError> {
        let Webhook { url, method, headers, body, timeout, secret } = webhook;
        let url = parse_url(&url)?;
        let wrong = |error: &dyn fmt::Display| TargetError::Url(error.to_string());
        let host = url.host().ok_or(TargetError::Scheme)?.to_owned();
        let tls = match url.scheme() {
            "https" => Some(server_name(&host).map_err(|error| wrong(&error))?),
            _ => None,
        };
        let uri = Uri::from_str(&url[Position::BeforePath..Position::AfterQuery]);
        let authority = &url[Position::BeforeHost..Position::AfterPort];
        let method = match &*method {
            "GET" => Method::GET,
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            "DELETE" => Method::DELETE,
            _ => return Err(TargetError::Method),
        };
        let time_limit = timeout.as_deref().map(parse_time_limit).transpose();
        Ok(Self {
            host,
            port: url.port_or_known_default().ok_or(TargetError::Scheme)?,
            tls,
            time_limit: time_limit.map_err(TargetError::Timeout)?,
            secret,
            method,
            uri: uri.map_err(|error| wrong(&error))?,
            authority: HeaderValue::from_str(authority).map_err(|error| wrong(&error))?,
            headers: parse_headers(&headers)?,
            content_type: content_type(&body),
            body: body.into(),
        })
    }
}

/// Parses the URL of a webhook. Host names are converted to their form in the DNS, and other
/// spellings of an IPv4 address to the usual form.
fn parse_url(text: &str) -> Result<Url, TargetError> {
    // The parser would drop these characters.
    if text.contains(|character: char| character.is_control() || character == ' ') {
        return Err(TargetError::Url("spaces and control characters are not allowed".to_owned()));
    }
    let has_scheme = text.split_once("://").is_some_and(|(scheme, rest)| {
        ["http", "https"].iter().any(|it| scheme.eq_ignore_ascii_case(it))
            && !rest.starts_with(['/', '\\'])
    });
    if !has_scheme {
        return Err(TargetError::Scheme);
    }
    let url = Url::parse(text).map_err(|error| TargetError::Url(error.to_string()))?;
    match url.username().is_empty() && url.password().is_none() {
        true => Ok(url),
        false => Err(TargetError::Credentials),
    }
}

fn server_name(host: &Host<String>) -> Result<ServerName<'static>, impl fmt::Display + use<>> {
    match host {
        Host::Domain(name) => ServerName::try_from(name.clone()),
        Host::Ipv4(address) => Ok(ServerName::from(IpAddr::from(*address))),
        Host::Ipv6(address) => Ok(ServerName::from(IpAddr::from(*address))),
    }
}

fn parse_headers(all: &BTreeMap<String, String>) -> Result<HeaderMap, TargetError> {
    let length: usize = all.iter().map(|(name, value)| name.len() + value.len()).sum();
    if all.len() > MAX_HEADERS || length > MAX_HEADER_BYTES {
        return Err(TargetError::Headers);
    }
    let mut headers = HeaderMap::with_capacity(all.len());
    for (text, value) in all {
        let wrong = |why| TargetError::Header { name: text.clone(), why };
        let (name, value) = checked_header(text, value).map_err(wrong)?;
        if headers.insert(name, value).is_some() {
            return Err(wrong(HeaderError::Repeated));
        }
    }
    Ok(headers)
}

/// Parses a header of a call. Fails if the service sets this header itself.
fn checked_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), HeaderError> {
    let name = HeaderName::from_str(name).map_err(|_| HeaderError::Name)?;
    if RESERVED.contains(&name.as_str()) || name.as_str().starts_with(OWN) {
        return Err(HeaderError::Reserved);
    }
    Ok((name, HeaderValue::from_str(value).map_err(|_| HeaderError::Value)?))
}

/// Returns the default content type of a body.
fn content_type(body: &str) -> Option<&'static str> {
    match body.is_empty() {
        true => None,
        false if serde_json::from_str::<IgnoredAny>(body).is_ok() => Some("application/json"),
        false => Some("text/plain; charset=utf-8"),
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload(why) => write!(f, "the payload is not a webhook: {why}"),
            Self::Url(why) => write!(f, "url: {why}"),
            Self::Scheme => f.write_str("url: expected http://HOST/… or https://HOST/…"),
            Self::Credentials => f.write_str("url: must not contain a user name or password"),
            Self::Method => f.write_str("method: expected GET, POST, PUT, PATCH or DELETE"),
            Self::Timeout(why) => write!(f, "timeout: {why}"),
            Self::Header { name, why } => write!(f, "header {name:?}: {why}"),
            Self::Headers => write!(
                f,
                "headers: expected at most {MAX_HEADERS}, with {MAX_HEADER_BYTES} bytes in total"
            ),
        }
    }
}

impl Error for TargetError {}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "expected letters, digits and dashes",
            Self::Value => "line breaks and control characters are not allowed",
            Self::Reserved => "is set by the service itself",
            Self::Repeated => "is there in another spelling",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn target(webhook: serde_json::Value) -> Result<Target, TargetError> {
        serde_json::from_value::<Webhook>(webhook).expect("a webhook").try_into()
    }

    fn of_url(url: &str) -> Result<Target, TargetError> {
        target(json!({ "url": url }))
    }

    fn sent(target: &Target) -> Request<Full<Bytes>> {
        target.request([].into_iter(), [])
    }

    #[test]
    fn a_url_is_called_as_it_is_parsed() {
        for (url, host, port, path) in [
            ("http://example.org", "example.org", 80, "/"),
            ("http://example.org?x=1", "example.org", 80, "/?x=1"),
            ("https://example.org/a?b#c", "example.org", 443, "/a?b"),
            ("https://example.org:8443/{a}|b", "example.org:8443", 8443, "/{a}|b"),
            ("HTTP://Example.ORG:80/", "example.org", 80, "/"),
            ("http://bücher.example/ä", "xn--bcher-kva.example", 80, "/%C3%A4"),
            ("http://127.1/", "127.0.0.1", 80, "/"),
            ("http://0x7f000001/", "127.0.0.1", 80, "/"),
            ("http://2130706433/", "127.0.0.1", 80, "/"),
            ("http://[::FFFF:127.0.0.1]:81/", "[::ffff:7f00:1]:81", 81, "/"),
        ] {
            let target = of_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            let request = sent(&target);
            assert_eq!(request.headers()[HOST], host, "{url}");
            assert_eq!(target.port, port, "{url}");
            // hyper writes these bytes without parsing them.
            let written = request.uri().path_and_query().map(|path| path.as_str());
            assert!(written.is_some_and(|written| written.starts_with('/')), "{url}: {written:?}");
            assert_eq!(
                written.map(|written| written
                    .replace("%7B", "{")
                    .replace("%7D", "}")
                    .replace("%7C", "|")),
                Some(path.to_owned()),
                "{url}"
            );
        }
    }

    #[test]
    fn a_url_that_cannot_be_called_is_refused() {
        for url in [
            "",
            "nonsense",
            "ftp://example.org/",
            "http:example.org",
            "http://",
            "http:///path",
            "http://example.org:65536/",
            "http://example.org:-1/",
            "http://example.org:372390/",
            "http://example.org:x/",
            "http://exa mple.org/",
            "http://exa\tmple.org/",
            "http://example.org/\r\nx: y",
            "http://[::1",
            "http://1.2.3.256/",
            "http://a..b%00/",
            "http://user@example.org/",
            "http://user:password@example.org/",
            "http://:x@example.org/",
        ] {
            let error = of_url(url).expect_err(url).to_string();
            assert!(error.starts_with("url: "), "{url}: {error}");
        }
    }

    #[test]
    fn headers_that_cannot_be_sent_as_they_are_are_refused() {
        for (headers, why) in [
            (json!({ "a b": "1" }), "expected letters"),
            (json!({ "a": "line\nbreak" }), "line breaks"),
            (json!({ "Keep-Alive": "1" }), "is set by the service"),
            (json!({ "Proxy-Connection": "1" }), "is set by the service"),
            (json!({ "Proxy-Authorization": "1" }), "is set by the service"),
            (json!({ "HTTP2-Settings": "1" }), "is set by the service"),
            (json!({ "Webhook-Attempt": "1" }), "is set by the service"),
            (json!({ "X-A": "1", "x-a": "2" }), "is there in another spelling"),
        ] {
            let found = target(json!({ "url": "http://example.org/", "headers": headers }));
            let error = found.expect_err("an error").to_string();
            assert!(error.contains(why), "{error}");
        }
        let many: BTreeMap<String, &str> =
            (0..40_000).map(|number| (format!("x{number}"), "")).collect();
        let found = target(json!({ "url": "http://example.org/", "headers": many }));
        assert!(matches!(found, Err(TargetError::Headers)));
    }

    #[test]
    fn a_body_has_a_type() {
        for (body, kind) in [
            ("", None),
            ("all of today", Some("text/plain; charset=utf-8")),
            ("{\"a\": 1}", Some("application/json")),
            ("{\"a\": 1", Some("text/plain; charset=utf-8")),
        ] {
            let webhook = json!({ "url": "http://example.org/", "body": body });
            let request = sent(&target(webhook).expect("a target"));
            let found =
                request.headers().get(CONTENT_TYPE).map(|kind| kind.to_str().expect("text"));
            assert_eq!(found, kind, "{body}");
        }
        let headers = json!({ "content-type": "text/csv" });
        let webhook = json!({ "url": "http://example.org/", "body": "1", "headers": headers });
        let request = sent(&target(webhook).expect("a target"));
        assert_eq!(
            request.headers().get_all(CONTENT_TYPE).iter().collect::<Vec<_>>(),
            ["text/csv"]
        );
    }
}
