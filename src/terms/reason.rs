//! Every reason code, whose side it is on, and the status it answers with (contract, sections 2, 3 and 6).

/// Whose fault a refusal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The client's message or card.
    Client,
    /// leafgate's own state.
    Leafgate,
    /// The pinned host.
    Host,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $variant:ident = $code:literal, $status:literal, $side:ident;)*) => {
        /// Why a call or message ended as it did. The code is what a client, an auditor and `docs/reasons.md` see.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($(#[doc = $doc])* $variant,)* }

        impl Reason {
            /// Every reason, in the order of the contract.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant),*];

            /// The reason code.
            pub fn code(self) -> &'static str {
                match self { $(Reason::$variant => $code,)* }
            }

            /// What it means, in one sentence; names stand between backquotes.
            pub fn text(self) -> &'static str {
                match self { $(Reason::$variant => concat!($($doc),*).trim_ascii(),)* }
            }

            /// The HTTP status; 422 stands for the policy's `answers.refused`. 200 marks the two reasons that refuse nothing.
            pub fn status(self) -> u16 {
                match self { $(Reason::$variant => $status,)* }
            }

            /// Whose fault it is.
            pub fn side(self) -> Side {
                match self { $(Reason::$variant => Side::$side,)* }
            }
        }
    };
}

reasons! {
    /// No card was attached.
    CardMissing = "card_missing", 422, Client;
    /// More than one card was attached.
    CardAmbiguous = "card_ambiguous", 422, Client;
    /// The card is not one strict JSON object of the known fields.
    CardMalformed = "card_malformed", 422, Client;
    /// A required field is absent.
    FieldMissing = "field_missing", 422, Client;
    /// The class is `machine-local`.
    MachineLocal = "machine_local", 422, Client;
    /// Residue is not empty.
    ResiduePresent = "residue_present", 422, Client;
    /// A field is blank.
    FieldBlank = "field_blank", 422, Client;
    /// The class is `redacted-metadata`: split.
    RedactedMetadata = "redacted_metadata", 200, Client;
    /// The class is `public-fixture`: release.
    PublicFixture = "public_fixture", 200, Client;
    /// The class is none of the three.
    ClassUnknown = "class_unknown", 422, Client;
    /// Method and path are not on the pinned host's routes.
    RouteNotAllowed = "route_not_allowed", 422, Client;
    /// `fixture_hash` is outside its grammar.
    HashMalformed = "hash_malformed", 422, Client;
    /// `fixture_id` is outside its grammar.
    IdMalformed = "id_malformed", 422, Client;
    /// The pin is a placeholder.
    PinPlaceholder = "pin_placeholder", 422, Client;
    /// The pin names no host of the policy.
    PinUnknown = "pin_unknown", 422, Client;
    /// The pin was never confirmed, or too long ago.
    PinStale = "pin_stale", 422, Client;
    /// The fixture is not registered.
    FixtureUnknown = "fixture_unknown", 422, Client;
    /// The card's hash is not the recorded one.
    FixtureMismatch = "fixture_mismatch", 422, Client;
    /// The fixture's files no longer have the recorded hash.
    FixtureChanged = "fixture_changed", 422, Client;
    /// A split without a failure label.
    LabelMissing = "label_missing", 422, Client;
    /// A failure label that is not on the policy's list.
    LabelUnknown = "label_unknown", 422, Client;
    /// The payload of a split contradicts its card.
    PayloadContradicts = "payload_contradicts", 422, Client;
    /// The body of a release is not plain `application/json`.
    MediaNotAllowed = "media_not_allowed", 422, Client;
    /// The body of a release is not bound to its fixture.
    BodyUnbound = "body_unbound", 422, Client;
    /// The request is not one clean HTTP/1.1 message.
    HttpMalformed = "http_malformed", 400, Client;
    /// The path lies outside the API root.
    NotFound = "not_found", 404, Client;
    /// The client did not finish its request.
    ClientTimeout = "client_timeout", 408, Client;
    /// The body is over the limit.
    BodyTooLarge = "body_too_large", 413, Client;
    /// The head is over the limit.
    HeadTooLarge = "head_too_large", 431, Client;
    /// The client showed no token or certificate where the policy asks for one.
    ClientNotAllowed = "client_not_allowed", 422, Client;
    /// The name resolved outside the host's address class.
    AddressRefused = "address_refused", 422, Host;
    /// The host could not be verified.
    TlsFailed = "tls_failed", 422, Host;
    /// The host answered with a redirect.
    RedirectRefused = "redirect_refused", 422, Host;
    /// The host could not be reached.
    ConnectFailed = "connect_failed", 502, Host;
    /// The host's answer is not clean HTTP.
    HostMalformed = "host_malformed", 502, Host;
    /// The record cannot be made durable.
    LedgerUnavailable = "ledger_unavailable", 503, Leafgate;
    /// Too many calls in flight or waiting.
    Overloaded = "overloaded", 503, Leafgate;
    /// The host did not answer in time.
    HostTimeout = "host_timeout", 504, Host;
}

/// Words with which some clients recognise a model's own refusal; no message has them.
const REFUSAL_WORDS: [&str; 2] = ["blocked", "flagged"];

/// Whether a client may take this text for a model's own refusal.
pub fn reads_as_refusal(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    REFUSAL_WORDS.iter().any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn codes_are_distinct_words() {
        let mut codes: Vec<_> = Reason::ALL.iter().map(|r| r.code()).collect();
        assert!(
            codes
                .iter()
                .all(|c| c.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        );
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Reason::ALL.len());
    }
}
