//! Leaf, step, verdict and egress class.

/// The result of the tree, nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leaf {
    /// Refused outright; nothing leaves.
    Hold,
    /// Cut to four values.
    Split,
    /// The body passes byte for byte, to the pinned host only.
    Release,
}

impl Leaf {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Leaf::Hold => "hold",
            Leaf::Split => "split",
            Leaf::Release => "release",
        }
    }
}

/// A step of the tree, 0 to 6 (contract, section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// No card, two, a malformed one, or a required field is absent.
    S0,
    /// `machine-local`.
    S1,
    /// Residue is not empty.
    S2,
    /// A field is blank.
    S3,
    /// `redacted-metadata`.
    S4,
    /// `public-fixture`.
    S5,
    /// Anything else.
    S6,
}

impl Step {
    /// The number, 0 to 6.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The number as text, for a header.
    pub fn text(self) -> &'static str {
        ["0", "1", "2", "3", "4", "5", "6"][usize::from(self.number())]
    }
}

/// What became of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Sent to the pinned host.
    Forward,
    /// Refused; what leafgate answered stands instead.
    Refuse,
    /// Answered by leafgate from the policy (`GET /models`).
    Local,
}

impl Verdict {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Forward => "forward",
            Verdict::Refuse => "refuse",
            Verdict::Local => "local",
        }
    }
}

/// The three egress classes. A card's string is one of them byte for byte or none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EgressClass {
    /// `machine-local`
    MachineLocal,
    /// `redacted-metadata`
    RedactedMetadata,
    /// `public-fixture`
    PublicFixture,
}

impl EgressClass {
    /// Every class.
    pub const ALL: [EgressClass; 3] = [
        EgressClass::MachineLocal,
        EgressClass::RedactedMetadata,
        EgressClass::PublicFixture,
    ];

    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            EgressClass::MachineLocal => "machine-local",
            EgressClass::RedactedMetadata => "redacted-metadata",
            EgressClass::PublicFixture => "public-fixture",
        }
    }

    /// The class that `text` names, byte for byte; a typo names none.
    pub fn parse(text: &str) -> Option<EgressClass> {
        EgressClass::ALL
            .into_iter()
            .find(|class| class.name() == text)
    }
}
