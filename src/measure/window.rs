//! Two moments, and what happened between them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use super::host::{HostCounters, cpus};
use super::metric::Metric;
use super::tree::{TreeCounters, process_cpu};

/// All counters at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Clock that never jumps.
    pub at: Instant,
    /// Clock on the wall.
    pub wall: SystemTime,
    /// The server's process tree.
    pub server: TreeCounters,
    /// CPU time of the client, if it is alive.
    pub client: Option<Duration>,
    /// The host.
    pub host: HostCounters,
}

impl Moment {
    /// Reads all counters now.
    ///
    /// # Errors
    /// When the server's process is gone.
    pub fn now(server: u32, client: u32) -> anyhow::Result<Self> {
        Ok(Self { at: Instant::now(), wall: SystemTime::now(), client: process_cpu(client), host: HostCounters::read()?, server: TreeCounters::read(server)? })
    }
}

/// The measured part of a step.
#[derive(Clone, Debug)]
pub struct Window {
    /// Readings in order, about one a second; at least two.
    moments: Vec<Moment>,
}

/// Share of all CPUs beyond which stolen time makes a sample doubtful.
const STEAL_LIMIT: f64 = 0.02;
/// Share of one CPU beyond which processes that are neither server nor client do.
const OTHERS_LIMIT: f64 = 0.20;
/// Seconds by which the wall clock may drift from the steady one within a window.
const CLOCK_LIMIT: f64 = 0.5;

impl Window {
    /// A window over readings in order; `None` with fewer than two.
    #[must_use]
    pub fn new(moments: Vec<Moment>) -> Option<Self> {
        (moments.len() >= 2).then_some(Self { moments })
    }

    fn first(&self) -> &Moment {
        &self.moments[0]
    }

    fn last(&self) -> &Moment {
        &self.moments[self.moments.len() - 1]
    }

    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.last().at.duration_since(self.first().at).as_secs_f64()
    }

    /// CPU microseconds of the server in each interval between readings.
    #[must_use]
    pub fn server_cpu_series(&self) -> Vec<f64> {
        self.moments.windows(2).map(|pair| micros(pair[1].server.cpu.saturating_sub(pair[0].server.cpu))).collect()
    }

    /// The metrics that follow from counters, for the queries answered in the window. Formulas are
    /// in the documentation of [`Metric`].
    #[must_use]
    pub fn metrics(&self, queries: f64) -> BTreeMap<Metric, f64> {
        let (first, last) = (self.first(), self.last());
        let cpu = micros(last.server.cpu.saturating_sub(first.server.cpu)) / queries;
        // Ticks are coarse, so the split into user and system is taken from shares, and the sum is
        // exact.
        let user = (micros(last.server.cpu) * last.server.user_share - micros(first.server.cpu) * first.server.user_share) / queries;
        let user = user.clamp(0.0, cpu);
        let host = micros((last.host.user + last.host.system).saturating_sub(first.host.user + first.host.system));
        let count = |last: u64, first: u64| {
            #[expect(clippy::cast_precision_loss, reason = "counts of a window far below 2^52")]
            let count = last.saturating_sub(first) as f64;
            count / queries
        };
        let mut metrics = BTreeMap::from([
            (Metric::Cpupq, cpu),
            (Metric::UserCpupq, user),
            (Metric::SystemCpupq, cpu - user),
            (Metric::HostCpupq, host / queries),
            (Metric::Cspq, count(last.server.switches, first.server.switches)),
            (Metric::HostCspq, count(last.host.switches, first.host.switches)),
            (Metric::Pfpq, count(last.server.faults, first.server.faults)),
            (Metric::Rpq, count(last.host.reads, first.host.reads)),
            (Metric::Rkbpq, (last.host.read_kb - first.host.read_kb) / queries),
            (Metric::Wpq, count(last.host.writes, first.host.writes)),
            (Metric::Wkbpq, (last.host.written_kb - first.host.written_kb) / queries),
        ]);
        #[expect(clippy::cast_precision_loss, reason = "bytes of memory far below 2^52")]
        let peak = self.moments.iter().map(|moment| moment.server.resident).max().unwrap_or(0) as f64;
        metrics.insert(Metric::PeakRss, peak / 1e6);
        if let (Some(first), Some(last)) = (first.client, last.client) {
            metrics.insert(Metric::ClientCpupq, micros(last.saturating_sub(first)) / queries);
        }
        metrics
    }

    /// Reasons to distrust the window, each a short sentence.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let (first, last) = (self.first(), self.last());
        let seconds = self.seconds();
        #[expect(clippy::cast_precision_loss, reason = "a number of CPUs")]
        let capacity = seconds * cpus() as f64;
        let mut doubts = Vec::new();
        let steal = last.host.steal.saturating_sub(first.host.steal).as_secs_f64() / capacity;
        if steal > STEAL_LIMIT {
            doubts.push(format!("the hypervisor gave {:.1}% of the CPU time to others", steal * 100.0));
        }
        let wall = last.wall.duration_since(first.wall).map_or(-seconds, |wall| wall.as_secs_f64());
        if (wall - seconds).abs() > CLOCK_LIMIT {
            doubts.push(format!("the wall clock moved {wall:.1} s while {seconds:.1} s passed"));
        }
        if let (Some(client_first), Some(client_last)) = (first.client, last.client) {
            let busy = (last.host.user + last.host.system).saturating_sub(first.host.user + first.host.system);
            let known = last.server.cpu.saturating_sub(first.server.cpu) + client_last.saturating_sub(client_first);
            let others = busy.saturating_sub(known).as_secs_f64() / seconds;
            if others > OTHERS_LIMIT {
                doubts.push(format!("processes that are neither server nor client used {:.0}% of a CPU", others * 100.0));
            }
        }
        if last.server.processes < first.server.processes {
            doubts.push(format!("the server had {} processes at the start and {} at the end", first.server.processes, last.server.processes));
        }
        doubts
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at: Instant, seconds: u64, cpu_ms: u64) -> Moment {
        Moment {
            at: at + Duration::from_secs(seconds),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            server: TreeCounters { cpu: Duration::from_millis(cpu_ms), user_share: 0.75, switches: seconds * 1000, processes: 7, resident: 50_000_000 * seconds, ..TreeCounters::default() },
            client: Some(Duration::from_millis(seconds * 100)),
            host: HostCounters { user: Duration::from_millis(cpu_ms + seconds * 100), reads: seconds * 10, read_kb: 40.0, ..HostCounters::default() },
        }
    }

    #[test]
    fn metrics_follow_their_formulas() {
        let start = Instant::now();
        let window = Window::new(vec![moment(start, 0, 0), moment(start, 5, 1000), moment(start, 10, 2000)]).unwrap();
        let metrics = window.metrics(100_000.0);
        let close = |metric: Metric, wanted: f64| assert!((metrics[&metric] - wanted).abs() < 1e-9, "{metric}: {} instead of {wanted}", metrics[&metric]);
        close(Metric::Cpupq, 20.0);
        close(Metric::UserCpupq, 15.0);
        close(Metric::SystemCpupq, 5.0);
        close(Metric::ClientCpupq, 10.0);
        close(Metric::HostCpupq, 30.0);
        close(Metric::Cspq, 0.1);
        close(Metric::Rpq, 0.001);
        close(Metric::Rkbpq, 0.0);
        close(Metric::PeakRss, 500.0);
        assert!(window.doubts().is_empty(), "{:?}", window.doubts());
        assert_eq!(window.server_cpu_series(), [1e6, 1e6]);
    }

    #[test]
    fn each_doubt_is_raised() {
        let start = Instant::now();
        let first = moment(start, 0, 0);
        let raised = |change: &dyn Fn(&mut Moment), wanted: &str| {
            let mut last = moment(start, 10, 2000);
            change(&mut last);
            let doubts = Window::new(vec![first, last]).unwrap().doubts();
            assert!(doubts.iter().any(|doubt| doubt.contains(wanted)), "{doubts:?}");
        };
        raised(&|last| last.host.steal = Duration::from_secs(3600), "hypervisor");
        raised(&|last| last.wall = SystemTime::UNIX_EPOCH + Duration::from_secs(70), "wall clock");
        raised(&|last| last.host.user += Duration::from_secs(5), "neither server nor client");
        raised(&|last| last.server.processes = 3, "processes at the start");
    }
}
