//! The strict check of a chunked body (RFC 9112 section 7.1): no extensions, no trailers, no slack.
//!
//! It decodes nothing: hyper does, after every byte here was found to be where it must be.

/// Where in the coding the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a size, with so many digits read.
    Size {
        digits: u8,
        size: u64,
    },
    /// After the CR of a size line.
    SizeLf {
        size: u64,
    },
    /// In data, with so many bytes to come.
    Data {
        left: u64,
    },
    /// After data: CR, then LF.
    DataCr,
    DataLf,
    /// After the last chunk's line: CR, then LF.
    EndCr,
    EndLf,
    /// The body is over.
    Over,
}

/// A chunked body that is being watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunked(Place);

/// The coding is broken, has an extension or a trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkFault;

impl Default for Chunked {
    fn default() -> Chunked {
        Chunked(Place::Size { digits: 0, size: 0 })
    }
}

impl Chunked {
    /// Takes bytes as they come; gives how many of them belong to this body.
    ///
    /// # Errors
    /// At the first byte that stands where it may not.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, ChunkFault> {
        let mut at = 0;
        while at < bytes.len() && self.0 != Place::Over {
            if let Place::Data { left } = self.0 {
                let step = left.min((bytes.len() - at) as u64);
                at += step as usize;
                self.0 = if step == left {
                    Place::DataCr
                } else {
                    Place::Data { left: left - step }
                };
                continue;
            }
            self.0 = self.0.after(bytes[at])?;
            at += 1;
        }
        Ok(at)
    }

    /// Whether the body is over.
    pub fn is_over(&self) -> bool {
        self.0 == Place::Over
    }
}

impl Place {
    fn after(self, byte: u8) -> Result<Place, ChunkFault> {
        match (self, byte) {
            (Place::Size { digits, size }, byte) if digits < 16 && byte.is_ascii_hexdigit() => {
                let digit = u64::from((byte as char).to_digit(16).ok_or(ChunkFault)?);
                Ok(Place::Size {
                    digits: digits + 1,
                    size: (size << 4) | digit,
                })
            }
            // A size that cannot be added to without overflow is no size.
            (Place::Size { digits: 1.., size }, b'\r') if size <= u64::MAX >> 1 => {
                Ok(Place::SizeLf { size })
            }
            (Place::SizeLf { size: 0 }, b'\n') => Ok(Place::EndCr),
            (Place::SizeLf { size }, b'\n') => Ok(Place::Data { left: size }),
            (Place::DataCr, b'\r') => Ok(Place::DataLf),
            (Place::DataLf, b'\n') => Ok(Place::Size { digits: 0, size: 0 }),
            (Place::EndCr, b'\r') => Ok(Place::EndLf),
            (Place::EndLf, b'\n') => Ok(Place::Over),
            (
                Place::Size { .. }
                | Place::SizeLf { .. }
                | Place::Data { .. }
                | Place::DataCr
                | Place::DataLf
                | Place::EndCr
                | Place::EndLf
                | Place::Over,
                _,
            ) => Err(ChunkFault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ChunkFault, Chunked};

    fn whole(bytes: &[u8]) -> Result<(usize, bool), ChunkFault> {
        let mut watched = Chunked::default();
        let taken = watched.take(bytes)?;
        Ok((taken, watched.is_over()))
    }

    #[test]
    fn a_clean_body_ends_where_it_ends() {
        for body in [
            &b"0\r\n\r\n"[..],
            b"2\r\n{}\r\n0\r\n\r\n",
            b"A\r\n0123456789\r\n1\r\nx\r\n000\r\n\r\n",
        ] {
            let mut more = body.to_vec();
            more.extend_from_slice(b"GET / HTTP/1.1");
            assert_eq!(whole(&more), Ok((body.len(), true)));
            let mut watched = Chunked::default();
            for byte in body {
                assert_eq!(watched.take(&[*byte]), Ok(1));
            }
            assert!(watched.is_over());
            assert_eq!(whole(&body[..body.len() - 1]), Ok((body.len() - 1, false)));
        }
    }

    #[test]
    fn what_two_parsers_may_read_differently_is_refused() {
        for body in [
            "\r\n0\r\n\r\n",
            "0_2e\r\n",
            "2;secret=x\r\n{}\r\n0\r\n\r\n",
            "2 \r\n{}\r\n",
            " 2\r\n{}\r\n",
            "0x2\r\n{}\r\n",
            "+2\r\n{}\r\n",
            "2\n{}\r\n0\r\n\r\n",
            "5\r\nhelloXX0\r\n\r\n",
            "2\r\n{}\n0\r\n\r\n",
            "0\r\nX-Leak: 1\r\n\r\n",
            "0\r\nX",
            "f0000000000000003\r\n",
            "ffffffffffffffff\r\n",
            "2\r\r\n",
        ] {
            assert_eq!(whole(body.as_bytes()), Err(ChunkFault), "{body:?}");
        }
    }
}
