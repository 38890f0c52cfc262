//! The context of a trace (W3C Trace Context), which the request that inserts a timer passes on to
//! the calls of the timer.

#![forbid(unsafe_code)]

use http::HeaderMap;
use tourbillon_durable::Options;

/// The header that identifies the trace and the operation in it.
const PARENT: &str = "traceparent";

/// The header that vendors add to a trace.
const STATE: &str = "tracestate";

/// The maximum length of a state that is passed on. Each participant of a trace passes on at least
/// this much.
const MAX_STATE_BYTES: usize = 512;

/// Adds the trace of a request to the options of a timer. An invalid trace is left out, as the
/// specification demands, so that the receiver begins its own trace.
pub(crate) fn carried(headers: &HeaderMap, options: Options) -> Options {
    let mut parents = headers.get_all(PARENT).iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return options };
    let Some(parent) = parent.to_str().ok().filter(|text| is_parent(text)) else { return options };
    let options = options.header(PARENT, parent);
    let states = headers.get_all(STATE).iter().map(|state| state.to_str());
    let state = states.collect::<Result<Vec<_>, _>>().unwrap_or_default().join(",");
    match state.is_empty() || state.len() > MAX_STATE_BYTES {
        true => options,
        false => options.header(STATE, state),
    }
}

/// Returns `true` for `00-`, 32 digits, `-`, 16 digits, `-` and 2 digits, in lower-case hexadecimal
/// and not all zero. A later version may continue after a dash.
fn is_parent(text: &str) -> bool {
    let mut fields = text.splitn(5, '-');
    let mut field = |length| {
        fields.next().filter(|field| {
            let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            field.len() == length && field.bytes().all(is_digit)
        })
    };
    let (version, trace, parent, flags) = (field(2), field(32), field(16), field(2));
    let is_set = |field: &str| field.bytes().any(|digit| digit != b'0');
    let is_whole = flags.is_some() && trace.is_some_and(is_set) && parent.is_some_and(is_set);
    match version {
        Some("ff") | None => false,
        Some("00") => is_whole && fields.next().is_none(),
        Some(_) => is_whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn carried_by(pairs: &[(&'static str, &str)]) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        let options = carried(&headers, Options::new());
        options.get_headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn a_trace_is_carried_with_its_state() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(carried_by(&[(PARENT, VALID)]), [pair(PARENT, VALID)]);
        let found = carried_by(&[(PARENT, VALID), (STATE, "a=1"), (STATE, "b=2")]);
        assert_eq!(found, [pair(PARENT, VALID), pair(STATE, "a=1,b=2")]);
        let long = "a=".to_owned() + &"1".repeat(MAX_STATE_BYTES);
        assert_eq!(carried_by(&[(PARENT, VALID), (STATE, &long)]), [pair(PARENT, VALID)]);
        let later = format!("01{}-more", &VALID[2..]);
        assert_eq!(carried_by(&[(PARENT, &later)]), [pair(PARENT, &later)]);
    }

    #[test]
    fn an_invalid_trace_is_left_out_with_its_state() {
        let zeros = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let no_parent = "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
        let (upper, long) = (VALID.to_uppercase(), format!("{VALID}-more"));
        let never = format!("ff{}", &VALID[2..]);
        for parent in
            ["not a trace; DROP", "", &VALID[1..], zeros, no_parent, &upper, &long, &never]
        {
            assert_eq!(carried_by(&[(PARENT, parent), (STATE, "a=1")]), [], "{parent}");
        }
        assert_eq!(carried_by(&[(PARENT, VALID), (PARENT, VALID)]), []);
        assert_eq!(carried_by(&[(STATE, "a=1")]), []);
    }
}
