//! The strict check of the head of a `CONNECT` (contract, section 5; RFC 9110, section 9.3.6). Pure, as [`head`](super::head) is.

use super::head::{Fields, HeadFault, halves, header, lines, malformed};

/// Whether a head begins as a `CONNECT` does.
pub(super) fn is_connect(head: &[u8]) -> bool {
    head.starts_with(b"CONNECT ")
}

/// Checks the whole head of a `CONNECT`, its last empty line included. Gives what it names, `host:port` as written.
///
/// # Errors
/// The first fault, `http_malformed` or `head_too_large`.
pub(super) fn check_connect(head: &[u8]) -> Result<String, HeadFault> {
    let mut lines = lines(head)?;
    let authority = connect_line(lines.next().unwrap_or_default())?;
    let mut fields = Fields::default();
    for (count, line) in lines.enumerate() {
        let (name, value) = header(line, count)?;
        let keys = ["leafgate-card", "authorization", "x-api-key"];
        if keys
            .iter()
            .any(|key| name.eq_ignore_ascii_case(key.as_bytes()))
        {
            return Err(malformed(
                "a card or a key stands on the CONNECT; send it on the requests inside the tunnel",
            ));
        }
        fields.take(name, value)?;
    }
    if fields.length.is_some() || fields.coding.is_some() || fields.expect.is_some() {
        return Err(malformed("the CONNECT has a body; send it without one"));
    }
    let host = fields.host.ok_or(malformed("the request has no Host"))?;
    // Some clients leave the usual port out.
    let short = authority.strip_suffix(":443").unwrap_or(authority);
    if [authority, short]
        .iter()
        .any(|own| own.as_bytes().eq_ignore_ascii_case(host))
    {
        Ok(authority.to_owned())
    } else {
        Err(malformed("Host is not what the CONNECT names"))
    }
}

/// `CONNECT SP host:port SP HTTP/1.1` (RFC 9112 section 3.2.3).
pub(super) fn connect_line(line: &[u8]) -> Result<&str, HeadFault> {
    const FORM: HeadFault = malformed("the request line is not CONNECT, host:port and HTTP/1.1");
    let (_, target) = halves(line, FORM)?;
    let target = std::str::from_utf8(target).map_err(|_| FORM)?;
    let (host, port) = target.rsplit_once(':').ok_or(FORM)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_[]:".contains(c);
    if host.is_empty() || !host.chars().all(plain) || port.parse::<u16>().is_err() {
        return Err(FORM);
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_is_host_and_port_and_nothing_else() {
        for (target, host, good) in [
            ("models.example.org:443", "models.example.org:443", true),
            ("models.example.org:443", "models.example.org", true),
            ("models.example.org:443", "MODELS.example.org:443", true),
            ("[2001:db8::7]:8443", "[2001:db8::7]:8443", true),
            ("models.example.org:8443", "models.example.org", false),
            ("models.example.org:443", "example.org:443", false),
            ("models.example.org", "models.example.org", false),
            (":443", ":443", false),
            ("models.example.org:", "models.example.org:", false),
            (
                "models.example.org:65536",
                "models.example.org:65536",
                false,
            ),
            ("/v1:443", "/v1:443", false),
            (
                "a@models.example.org:443",
                "a@models.example.org:443",
                false,
            ),
            ("m\u{f6}dels.example.org:443", "x", false),
        ] {
            let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let found = check_connect(head.as_bytes());
            assert_eq!(found.is_ok(), good, "{target} {host}: {found:?}");
            assert!(found.is_err() || found.as_deref() == Ok(target));
        }
        let many = "a: b\r\n".repeat(super::super::head::MAX_LINES + 1);
        let head = format!("CONNECT a.b:443 HTTP/1.1\r\n{many}\r\n");
        assert_eq!(
            check_connect(head.as_bytes()).map_err(|fault| fault.reason.code()),
            Err("head_too_large")
        );
    }
}
