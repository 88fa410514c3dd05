//! What is run on every build, and for how long.

use serde::{Deserialize, Serialize};

/// A kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// The sysbench microbenchmarks.
    Sysbench,
}

/// The workload of a matrix. Axes that only change the run (threads, tables, rows) are in the cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Which client.
    pub kind: WorkloadKind,
    /// Names of the steps, in the order of execution.
    pub steps: Vec<String>,
    /// Seconds of each step before the measured window.
    pub warmup: u32,
    /// Seconds of the measured window of each step.
    pub time: u32,
    /// Restarts per cell that `run` aims for.
    pub repeats: u32,
}
