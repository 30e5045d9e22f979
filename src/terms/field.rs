//! The fields a decision or a refusal can rest on.

/// A field of the card, or another part of the call, that decided. The order of the first seven is the card's own (contract, section 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// `fixture_id`
    FixtureId,
    /// `fixture_hash`
    FixtureHash,
    /// `egress_class`
    EgressClass,
    /// `residue`
    Residue,
    /// `host_pin`
    HostPin,
    /// `replay_window`
    ReplayWindow,
    /// `writable_surface`
    WritableSurface,
    /// `failure_label`
    FailureLabel,
    /// The method and path of the call.
    Route,
    /// `Content-Type` or `Content-Encoding`.
    Media,
    /// The body of the call.
    Body,
}

impl Field {
    /// The required fields, in the order in which an absent one is looked for.
    pub const REQUIRED: [Field; 7] = [
        Field::FixtureId,
        Field::FixtureHash,
        Field::EgressClass,
        Field::Residue,
        Field::HostPin,
        Field::ReplayWindow,
        Field::WritableSurface,
    ];

    /// The name as it stands in a card, an answer's `param` and the record.
    pub fn name(self) -> &'static str {
        match self {
            Field::FixtureId => "fixture_id",
            Field::FixtureHash => "fixture_hash",
            Field::EgressClass => "egress_class",
            Field::Residue => "residue",
            Field::HostPin => "host_pin",
            Field::ReplayWindow => "replay_window",
            Field::WritableSurface => "writable_surface",
            Field::FailureLabel => "failure_label",
            Field::Route => "route",
            Field::Media => "media",
            Field::Body => "body",
        }
    }
}
