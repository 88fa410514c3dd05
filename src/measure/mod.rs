//! What a step cost the server and the host.
//!
//! Takes the process id of a running server and moments in time. Gives counters of the server's
//! process tree and of the host between two moments, metrics by published formulas, and a
//! fingerprint of the host. Never starts, stops or disturbs anything: it reads `/proc` and `/sys`.

mod fingerprint;
mod fitness;
mod host;
mod metric;
mod tree;
mod window;

pub use fingerprint::{Fingerprint, fingerprint};
pub use fitness::{Finding, HostReadings, Severity};
pub use host::{HostCounters, cpus};
pub use metric::{Metric, Worse};
pub use tree::{ProcessCounters, TreeCost, TreeCounters};
pub use window::{Moment, Window};
