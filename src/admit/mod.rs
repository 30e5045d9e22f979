//! Admission (contract, section 3): the checks between an eligible leaf and the network, one function for each, in order.
//!
//! Promises: a [`Plan`] contains the exact bytes that would leave and the host they are for; there is no other maker. A split plan is made from four
//! closed types and never sees the body. A [`SealedBody`] is opened here and nowhere else.

mod body;
mod facts;
mod head;
mod headers;
mod hint;
mod plan;
mod sealed;
mod split;

pub use body::Admitted;
pub use facts::{BodyFacts, CallFacts, CallId, Dropped};
pub use head::{CallHead, Eligible, Target, check_head};
use plan::Denied;
pub use plan::{BindFacts, Departure, Plan, Refusal};
pub use sealed::SealedBody;
