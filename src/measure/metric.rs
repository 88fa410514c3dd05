//! The metrics, each with its unit, its formula and the way that is worse.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::matrix::{ConfigurationError, nearest};

/// Which way a metric gets worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    /// Larger values are worse: costs and response times.
    Higher,
    /// Smaller values are worse: rates.
    Lower,
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $unit:literal, $worse:ident;)+) => {
        /// A figure of one step in one restart. Names are those of the field (`facts/metrics.md`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Metric { $($(#[doc = $doc])+ $variant,)+ }

        impl Metric {
            /// Every metric, in the order in which reports show them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Name on the command line, in the database and in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Unit, for headings.
            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self { $(Self::$variant => $unit,)+ }
            }

            /// Which way is worse.
            #[must_use]
            pub const fn worse(self) -> Worse {
                match self { $(Self::$variant => Worse::$worse,)+ }
            }
        }
    };
}

metrics! {
    /// Queries per second: queries of the measured window / its length. In steps with transactions
    /// BEGIN and COMMIT count as queries, as sysbench counts them.
    Qps = "qps", "queries/s", Lower;
    /// Transactions per second: sysbench's events of the window / its length.
    Tps = "tps", "transactions/s", Lower;
    /// CPU microseconds of the server per query: (user + system time of the server's process tree,
    /// ended children included) / queries, over the window. Published figures use the whole host's
    /// vmstat instead (`facts/metrics.md` section 3); that one is [`Self::HostCpupq`].
    Cpupq = "cpupq", "us/query", Higher;
    /// The user part of [`Self::Cpupq`].
    UserCpupq = "user_cpupq", "us/query", Higher;
    /// The system part of [`Self::Cpupq`].
    SystemCpupq = "system_cpupq", "us/query", Higher;
    /// CPU microseconds of the client (sysbench) per query.
    ClientCpupq = "client_cpupq", "us/query", Higher;
    /// CPU microseconds of the whole host per query: (us + sy share x CPUs x seconds) / queries, the
    /// formula of the published `cpu/o` (`facts/metrics.md` section 2), in microseconds.
    HostCpupq = "host_cpupq", "us/query", Higher;
    /// Context switches of the server's process tree per query, voluntary and involuntary.
    Cspq = "cspq", "switches/query", Higher;
    /// Context switches of the host per query: published `cs/o`.
    HostCspq = "host_cspq", "switches/query", Higher;
    /// Page faults (minor and major) of the server's process tree per query.
    Pfpq = "pfpq", "faults/query", Higher;
    /// Storage reads of the host per query: published `r/o`.
    Rpq = "rpq", "reads/query", Higher;
    /// Kilobytes read from storage by the host per query: published `rKB/o`.
    Rkbpq = "rkbpq", "kB/query", Higher;
    /// Storage writes of the host per query.
    Wpq = "wpq", "writes/query", Higher;
    /// Kilobytes written to storage by the host per query: published `wKB/o`.
    Wkbpq = "wkbpq", "kB/query", Higher;
    /// Mean response time of a transaction.
    LatencyMean = "latency_mean", "ms", Higher;
    /// 95th percentile of the response time, from sysbench's histogram.
    LatencyP95 = "latency_p95", "ms", Higher;
    /// 99th percentile of the response time, from sysbench's histogram.
    LatencyP99 = "latency_p99", "ms", Higher;
    /// Longest response time.
    LatencyMax = "latency_max", "ms", Higher;
    /// Peak resident memory of the server's process tree during the window, from one-second readings:
    /// anonymous memory summed over processes, plus the largest shared and the largest file-backed
    /// part of one process, since these parts are the same pages in all of them.
    PeakRss = "peak_rss", "MB", Higher;
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Metric {
    type Err = ConfigurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|metric| metric.name() == text).ok_or_else(|| {
            let hint = nearest(text, Self::ALL.iter().map(|metric| metric.name())).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            let known = Self::ALL.iter().map(|metric| metric.name()).collect::<Vec<_>>().join(", ");
            ConfigurationError::new(format!("there is no metric `{text}`{hint} (known: {known})"))
        })
    }
}

impl Serialize for Metric {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
