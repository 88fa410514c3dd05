//! A build is never made twice, and never the wrong one.
//!
//! Takes [`BuildInputs`], everything that can change a build. Gives its [`BuildKey`], and for a key
//! a [`Lookup`]: the install, a remembered failure, or a [`BuildSlot`] under a lock. Only a slot can
//! put something into the cache, and only as a whole.
//! Never builds anything, never serves an entry whose manifest does not hold, never deletes what
//! another process uses.

mod key;
mod layout;
mod lookup;
mod manifest;
mod slot;
mod summary;

pub use key::{BuildInputs, BuildKey, FORMAT};
pub use layout::Layout;
pub use lookup::{Cache, Entry, KnownFailure, Lookup};
pub use manifest::{Manifest, Story};
pub use slot::{BuildSlot, WorkSlot};
pub use summary::{Line, Stats};
