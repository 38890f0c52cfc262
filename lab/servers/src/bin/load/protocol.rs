//! [`Protocol`] has the requests, and recognises complete answers.

use crate::Failure;
use httparse::{EMPTY_HEADER, Response, Status};

/// The protocol of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    /// The server returns the bytes that it received.
    Echo,
    /// HTTP/1.1 with `GET /` on a persistent connection.
    Http,
}

/// The maximum number of header fields of an answer.
const MAX_FIELDS: usize = 32;

impl Protocol {
    pub(crate) fn request(self) -> &'static [u8] {
        match self {
            Self::Echo => b"sixty-four bytes go to the server, and the same ones come back.\n",
            Self::Http => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        }
    }

    /// The length of the answer at the beginning of these bytes, or `None` if it is incomplete.
    pub(crate) fn answer(self, bytes: &[u8]) -> Result<Option<usize>, Failure> {
        match self {
            Self::Echo => {
                let request = self.request();
                let so_far = bytes.len().min(request.len());
                if bytes[..so_far] != request[..so_far] {
                    return Err("the answer is not what was sent".into());
                }
                Ok((so_far == request.len()).then_some(so_far))
            }
            Self::Http => http_answer(bytes),
        }
    }
}

fn http_answer(bytes: &[u8]) -> Result<Option<usize>, Failure> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut response = Response::new(&mut fields);
    let Status::Complete(head) = response.parse(bytes)? else {
        return Ok(None);
    };
    if response.code != Some(200) {
        return Err(format!("the answer has status {:?}", response.code).into());
    }
    let length = response.headers.iter().find(|it| it.name.eq_ignore_ascii_case("content-length"));
    let length = length.ok_or("the answer does not say how long it is")?;
    let whole = head + std::str::from_utf8(length.value)?.trim().parse::<usize>()?;
    Ok((bytes.len() >= whole).then_some(whole))
}
