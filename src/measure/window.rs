//! Two moments, and what happened between them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use super::host::{HostCounters, cpus};
use super::metric::Metric;
use super::tree::{TreeCost, TreeCounters, process_cpu};

/// All counters at one moment.
#[derive(Clone, Debug)]
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
/// Share of all CPUs beyond which work that neither server nor client did makes a sample doubtful.
/// The kernel's own threads are part of that work, and what they do grows with the machine.
const OTHERS_LIMIT: f64 = 0.10;
/// Seconds by which the wall clock may drift from the steady one within a window.
const CLOCK_LIMIT: f64 = 0.5;

impl Window {
    /// A window over readings in order; `None` with fewer than two.
    #[must_use]
    pub fn new(moments: Vec<Moment>) -> Option<Self> {
        (moments.len() >= 2).then_some(Self { moments })
    }

    /// The reading that begins it.
    #[must_use]
    pub fn first(&self) -> &Moment {
        &self.moments[0]
    }

    /// The reading that ends it.
    #[must_use]
    pub fn last(&self) -> &Moment {
        &self.moments[self.moments.len() - 1]
    }

    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.last().at.duration_since(self.first().at).as_secs_f64()
    }

    /// The readings, in order, about one a second.
    #[must_use]
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// CPU microseconds of the server in each interval between readings.
    #[must_use]
    pub fn server_cpu_series(&self) -> Vec<f64> {
        self.costs().map(|cost| micros(cost.cpu())).collect()
    }

    /// What the server used in each interval between readings.
    fn costs(&self) -> impl Iterator<Item = TreeCost> {
        self.moments.windows(2).map(|pair| pair[1].server.since(&pair[0].server))
    }

    /// What the server used in the whole window. CPU time is the difference of first and last, so
    /// that rounding does not add up; counters that the kernel forgets with a process are summed over
    /// the intervals, so that only its last second is lost.
    #[must_use]
    pub fn server(&self) -> TreeCost {
        let whole = self.last().server.since(&self.first().server);
        let summed: TreeCost = self.costs().sum();
        TreeCost { switches: summed.switches, read_bytes: summed.read_bytes, written_bytes: summed.written_bytes, ..whole }
    }

    /// CPU time of the client in the window; `None` when it was gone at an end of it.
    fn client(&self) -> Option<Duration> {
        Some(self.last().client?.saturating_sub(self.first().client?))
    }

    /// The metrics that follow from counters, for the queries answered in the window, of which there
    /// must be some. Formulas are in the documentation of [`Metric`].
    #[must_use]
    pub fn metrics(&self, queries: f64) -> BTreeMap<Metric, f64> {
        let (first, last, server) = (&self.first().host, &self.last().host, self.server());
        let host = (last.user + last.system).saturating_sub(first.user + first.system);
        let mut metrics = BTreeMap::from([
            (Metric::Cpupq, micros(server.cpu()) / queries),
            (Metric::UserCpupq, micros(server.user) / queries),
            (Metric::SystemCpupq, micros(server.system) / queries),
            (Metric::HostCpupq, micros(host) / queries),
            (Metric::Cspq, real(server.switches) / queries),
            (Metric::HostCspq, real(last.switches.saturating_sub(first.switches)) / queries),
            (Metric::Pfpq, real(server.faults) / queries),
            (Metric::Rpq, real(last.reads.saturating_sub(first.reads)) / queries),
            (Metric::Rkbpq, (last.read_kb - first.read_kb) / queries),
            (Metric::Wpq, real(last.writes.saturating_sub(first.writes)) / queries),
            (Metric::Wkbpq, (last.written_kb - first.written_kb) / queries),
            (Metric::PeakRss, self.moments.iter().map(|moment| real(moment.server.resident)).fold(0.0, f64::max) / 1e6),
        ]);
        metrics.extend(self.client().map(|client| (Metric::ClientCpupq, micros(client) / queries)));
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
        match self.client() {
            Some(client) => {
                let busy = (last.host.user + last.host.system).saturating_sub(first.host.user + first.host.system);
                let others = busy.saturating_sub(self.server().cpu() + client).as_secs_f64() / capacity;
                if others > OTHERS_LIMIT {
                    doubts.push(format!("work of neither server nor client took {:.0}% of the CPUs", others * 100.0));
                }
            }
            None => doubts.push("the client had ended at the end of the window".to_owned()),
        }
        doubts
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a window are far below 2^52")]
const fn real(count: u64) -> f64 {
    count as f64
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::tree::ProcessCounters;

    fn moment(start: Instant, seconds: u64, cpu_ms: u64) -> Moment {
        let process = ProcessCounters { cpu: Duration::from_millis(cpu_ms), switches: seconds * 1000, read_bytes: Some(0), written_bytes: Some(0) };
        Moment {
            at: start + Duration::from_secs(seconds),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            server: TreeCounters {
                living: BTreeMap::from([((7, 1), process)]),
                user_ticks: seconds * 3,
                system_ticks: seconds,
                resident: 50_000_000 * seconds,
                faults: seconds * 20,
                ..TreeCounters::default()
            },
            client: Some(Duration::from_millis(seconds * 100)),
            host: HostCounters {
                user: Duration::from_millis(cpu_ms + seconds * 100),
                reads: seconds * 10,
                read_kb: 40.0,
                switches: seconds * 3000,
                ..HostCounters::default()
            },
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
        close(Metric::HostCspq, 0.3);
        close(Metric::Pfpq, 0.002);
        close(Metric::Rpq, 0.001);
        close(Metric::Rkbpq, 0.0);
        close(Metric::PeakRss, 500.0);
        assert!(window.doubts().is_empty(), "{:?}", window.doubts());
        assert_eq!(window.server_cpu_series(), [1e6, 1e6]);
    }

    #[test]
    fn a_process_that_lived_for_some_of_the_window_counts() {
        let start = Instant::now();
        let mut moments = vec![moment(start, 0, 0), moment(start, 5, 1000), moment(start, 10, 2000)];
        let worker = ProcessCounters { cpu: Duration::from_millis(400), switches: 50, read_bytes: Some(0), written_bytes: Some(0) };
        moments[1].server.living.insert((9, 3), worker);
        moments[2].server.ended_cpu = Duration::from_millis(500);
        let server = Window::new(moments).unwrap().server();
        assert_eq!((server.cpu(), server.switches), (Duration::from_millis(2500), 10_050));
    }

    #[test]
    fn one_reading_is_no_window() {
        assert!(Window::new(vec![moment(Instant::now(), 0, 0)]).is_none());
    }

    #[test]
    fn each_doubt_is_raised() {
        let start = Instant::now();
        let raised = |change: &dyn Fn(&mut Moment), wanted: &str| {
            let mut last = moment(start, 10, 2000);
            change(&mut last);
            let doubts = Window::new(vec![moment(start, 0, 0), last]).unwrap().doubts();
            assert!(doubts.iter().any(|doubt| doubt.contains(wanted)), "{doubts:?}");
        };
        raised(&|last| last.host.steal = Duration::from_secs(3600), "hypervisor");
        raised(&|last| last.wall = SystemTime::UNIX_EPOCH + Duration::from_secs(70), "wall clock");
        raised(&|last| last.wall = SystemTime::UNIX_EPOCH, "wall clock");
        raised(&|last| last.host.user += Duration::from_secs(3600), "neither server nor client");
        raised(&|last| last.client = None, "client had ended");
    }
}
