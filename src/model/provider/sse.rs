//! Server-sent events (WHATWG HTML, "Interpreting an event stream"), of which only the data counts.
//!
//! Whatever comes, no more than one event of bounded size is kept.

/// An event that is not taken, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Invalid {
    /// It is larger than so many bytes.
    TooLarge(usize),
    /// It is not UTF-8 text.
    NotText,
}

/// Takes a stream apart into the data of its events.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The largest event, in bytes.
    limit: usize,
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    /// The line before ended in a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    is_first: bool,
}

impl Decoder {
    /// Takes events of at most so many bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), data: None, after_return: false, is_first: true }
    }

    /// Takes in what came; hands over the data of each event that is complete.
    ///
    /// # Errors
    /// The first event that is not taken: nothing after it counts.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, Invalid> {
        let mut events = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' if std::mem::take(&mut self.after_return) => {}
                b'\n' | b'\r' => {
                    self.after_return = byte == b'\r';
                    events.extend(self.end_line()?);
                }
                byte => {
                    self.after_return = false;
                    self.line.push(byte);
                    let size = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
                    if size > self.limit {
                        return Err(Invalid::TooLarge(self.limit));
                    }
                }
            }
        }
        Ok(events)
    }

    /// The stream is over: an event that only lacks the empty line after it counts, as some servers leave that out.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub(super) fn end(mut self) -> Result<Option<String>, Invalid> {
        let last = self.end_line()?;
        match last {
            Some(last) => Ok(Some(last)),
            None => self.dispatch(),
        }
    }

    fn end_line(&mut self) -> Result<Option<String>, Invalid> {
        let line = std::mem::take(&mut self.line);
        let line = match std::mem::take(&mut self.is_first) {
            true => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line),
            false => &line,
        };
        if line.is_empty() {
            return self.dispatch();
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[][..],
            Some([b':', value @ ..]) => value.strip_prefix(b" ").unwrap_or(value),
            // Another field, or a comment.
            _ => return Ok(None),
        };
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            data => *data = Some(value.to_vec()),
        }
        Ok(None)
    }

    fn dispatch(&mut self) -> Result<Option<String>, Invalid> {
        let Some(data) = self.data.take().filter(|data| !data.is_empty()) else { return Ok(None) };
        String::from_utf8(data).map(Some).map_err(|_| Invalid::NotText)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Result<Vec<String>, Invalid> {
        let mut decoder = Decoder::new(100);
        let mut events = Vec::new();
        for chunk in chunks {
            events.extend(decoder.feed(chunk)?);
        }
        events.extend(decoder.end()?);
        Ok(events)
    }

    #[test]
    fn lines_end_in_any_of_the_three_ways() {
        for text in ["data: a\n\ndata:b\n\n", "data: a\r\n\r\ndata:b\r\n\r\n", "data: a\r\rdata:b\r\r"] {
            assert_eq!(decode(&[text.as_bytes()]).unwrap(), ["a", "b"], "{text:?}");
        }
    }

    #[test]
    fn only_data_counts_and_its_lines_are_joined() {
        let text = "\u{feff}event: x\ndata: one\nid: 7\ndata: two\n: a comment\nretry: 1\n\n:\n\ndata\n\nevent: y\n\ndatum: z\n\n";
        assert_eq!(decode(&[text.as_bytes()]).unwrap(), ["one\ntwo"]);
    }

    #[test]
    fn the_last_event_may_lack_its_end() {
        assert_eq!(decode(&[b"data: a\n\ndata: b\n"]).unwrap(), ["a", "b"]);
        assert_eq!(decode(&[b"data: b"]).unwrap(), ["b"]);
        assert!(decode(&[b""]).unwrap().is_empty());
    }

    #[test]
    fn an_event_is_bounded_however_it_is_made() {
        let long = "x".repeat(101);
        let lines = "data: 0123456789\n".repeat(11);
        for text in [&long, &format!(": {long}"), &lines] {
            assert_eq!(decode(&[text.as_bytes()]).unwrap_err(), Invalid::TooLarge(100), "{text}");
        }
        assert_eq!(decode(&[b"data: \xff\n\n"]).unwrap_err(), Invalid::NotText);
    }

    proptest! {
        #[test]
        fn where_the_stream_is_cut_makes_no_difference(
            text in "(data: ?[a-cü]{0,3}(\n|\r|\r\n)|(\n|\r|\r\n)|:x\n){0,12}",
            cuts in prop::collection::vec(0usize..80, 0..8),
        ) {
            let whole = decode(&[text.as_bytes()]);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(&chunks), whole);
        }
    }
}
