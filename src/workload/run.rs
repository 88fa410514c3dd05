//! Runs one step and measures its window.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context;

use crate::measure::{Metric, Moment, Window};
use crate::process::{Interrupted, ProcessError};
use crate::server::{Area, RunningServer};

use super::command::{StepPlan, command};
use super::parse::{ParseError, STARTED, Second, Totals, parse, second};

/// Seconds by which the window may be longer or shorter than it should be: lines that come later than
/// this show that the client or dbisect did not get a CPU in time.
const LENGTH_LIMIT: f64 = 0.25;

/// What came of one step in one restart.
#[derive(Clone, Debug)]
pub struct StepRun {
    /// The client's command line.
    pub command: String,
    /// Everything the client printed.
    pub output: String,
    /// Per-second lines of the measured window.
    pub seconds: Vec<Second>,
    /// CPU microseconds of the server in each second of the window.
    pub server_cpu: Vec<f64>,
    /// The client's last report: the window and the second after it.
    pub totals: Totals,
    /// All counters, read at the window's beginning and at each of its per-second lines.
    pub window: Window,
    /// One value per metric.
    pub metrics: BTreeMap<Metric, f64>,
    /// Reasons not to count the sample; empty when there is none.
    pub doubts: Vec<String>,
}

/// A step that gave no sample. It is the outermost context of the error that says why, so that what
/// the client printed until then can be kept: `error.downcast_ref::<StepFailure>()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFailure {
    /// Name of the step.
    pub step: &'static str,
    /// The client's command line.
    pub command: String,
    /// Everything the client printed.
    pub output: String,
}

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the step {} failed", self.step)
    }
}

/// Runs a step on a server that is at rest.
///
/// dbisect reads the client's per-second lines as they are printed and takes a reading of all
/// counters at each, from the line that ends the warm-up to the line that ends the window. All
/// connections live throughout, so queries and counters refer to one and the same window.
///
/// # Errors
/// When the client cannot be run or gives up, its output is not whole, or the server ends: with a
/// [`StepFailure`] as context. When the user interrupts: [`Interrupted`].
pub fn run_step(plan: &StepPlan, server: &RunningServer, area: &Area) -> anyhow::Result<StepRun> {
    let program = command(plan, server.endpoint(), area)?;
    let command = program.command_line();
    let mut output = String::new();
    let mut readings = Readings::new(plan, server.pid());
    let ended = program.lines(|client, line| {
        output.push_str(line);
        output.push('\n');
        readings.see(line, client);
    });
    if ended.as_ref().is_err_and(ProcessError::is_interrupt) {
        return Err(Interrupted.into());
    }
    let sample = sample(plan, server, ended.map(drop), readings, &output);
    match sample {
        Ok(Sample { seconds, totals, window, metrics, doubts }) => {
            Ok(StepRun { command, output, seconds, server_cpu: window.server_cpu_series(), totals, window, metrics, doubts })
        }
        Err(error) => Err(error.context(StepFailure { step: plan.step.name, command, output })),
    }
}

/// Readings of all counters, each taken when a line of the client was printed.
struct Readings {
    server: u32,
    /// Second of the line that begins the window; 0 is the moment when all connections are there.
    first: u32,
    /// Second of the line that ends the window.
    last: u32,
    moments: Vec<Moment>,
    /// Lines that end the intervals between the moments: the first moment has none.
    seconds: Vec<Second>,
    lost: Option<anyhow::Error>,
}

impl Readings {
    const fn new(plan: &StepPlan, server: u32) -> Self {
        Self { server, first: plan.warmup, last: plan.warmup.saturating_add(plan.time), moments: Vec::new(), seconds: Vec::new(), lost: None }
    }

    fn see(&mut self, line: &str, client: u32) {
        if self.first == 0 && self.moments.is_empty() && line == STARTED {
            self.read(client);
            return;
        }
        // A line that cannot be understood is reported when the whole output is parsed.
        let Ok(Some(second)) = second(line) else { return };
        if (self.first..=self.last).contains(&second.second) {
            // The line of the first moment tells of the time before it.
            if !self.moments.is_empty() {
                self.seconds.push(second);
            }
            self.read(client);
        }
    }

    fn read(&mut self, client: u32) {
        match Moment::now(self.server, client) {
            Ok(moment) => self.moments.push(moment),
            Err(error) => self.lost = self.lost.take().or(Some(error)),
        }
    }
}

/// What a step that worked gave.
struct Sample {
    seconds: Vec<Second>,
    totals: Totals,
    window: Window,
    metrics: BTreeMap<Metric, f64>,
    doubts: Vec<String>,
}

fn sample(plan: &StepPlan, server: &RunningServer, ended: Result<(), ProcessError>, readings: Readings, output: &str) -> anyhow::Result<Sample> {
    let parsed = parse(output);
    if ended.is_err() || parsed.is_err() {
        // The client fails as well when the server dies, and then the server's word counts.
        server.check_soon()?;
    }
    // sysbench often ends with a crash of its own after it has said what is wrong.
    if let Err(error @ ParseError::Fatal(_)) = parsed {
        return Err(error.into());
    }
    ended?;
    server.check()?;
    let report = parsed?;
    if let Some(error) = readings.lost {
        return Err(error.context("the counters could not be read"));
    }
    let Readings { seconds, moments, first, last, .. } = readings;
    let window = Window::new(moments)
        .with_context(|| format!("sysbench printed fewer than two of the lines of the seconds {first} to {last}, so there is no window"))?;
    let doubts = doubts(plan, &report.totals, &seconds, &window);
    let metrics = metrics(&report.totals, &seconds, &window).with_context(|| format!("no query was answered in the seconds {first} to {last}"))?;
    Ok(Sample { seconds, totals: report.totals, window, metrics, doubts })
}

/// The metrics of a window; `None` when no query was answered in it.
fn metrics(totals: &Totals, seconds: &[Second], window: &Window) -> Option<BTreeMap<Metric, f64>> {
    // Each line is a rate over the time since the line before. Weighted by the time between our own
    // readings, the sum is of exactly the window that the counters cover, also when lines come late.
    let intervals = window.moments().windows(2).map(|pair| pair[1].at.duration_since(pair[0].at).as_secs_f64());
    let (queries, transactions) = seconds
        .iter()
        .zip(intervals)
        .fold((0.0, 0.0), |(queries, transactions), (second, interval)| (queries + second.qps * interval, transactions + second.tps * interval));
    if queries <= 0.0 {
        return None;
    }
    let mut metrics = window.metrics(queries);
    metrics.extend([
        (Metric::Qps, queries / window.seconds()),
        (Metric::Tps, transactions / window.seconds()),
        (Metric::LatencyMean, totals.latency_mean),
        (Metric::LatencyP95, totals.latency_p95),
        (Metric::LatencyMax, totals.latency_max),
    ]);
    metrics.extend(totals.latency_p99.map(|p99| (Metric::LatencyP99, p99)));
    Some(metrics)
}

fn doubts(plan: &StepPlan, totals: &Totals, seconds: &[Second], window: &Window) -> Vec<String> {
    let mut doubts = window.doubts();
    if totals.errors > 0 {
        doubts.push(format!("sysbench ignored {} errors", totals.errors));
    }
    if totals.reconnects > 0 {
        doubts.push(format!("sysbench reconnected {} times", totals.reconnects));
    }
    if seconds.len() != plan.time as usize {
        doubts.push(format!("{} per-second lines instead of {}", seconds.len(), plan.time));
    }
    if (window.seconds() - f64::from(plan.time)).abs() > LENGTH_LIMIT {
        doubts.push(format!("the window was {:.2} s long instead of {}", window.seconds(), plan.time));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::step;

    fn plan(warmup: u32, time: u32) -> StepPlan {
        StepPlan { step: step("point-query").unwrap(), threads: 1, tables: 1, rows: 100, warmup, time, seed: 1 }
    }

    fn line(second: u32, qps: f64) -> String {
        format!("[ {second}s ] thds: 1 tps: {:.2} qps: {qps:.2} (r/w/o: {qps:.2}/0.00/0.00) lat (ms,95%): 0.10 err/s: 0.00 reconn/s: 0.00", qps / 2.0)
    }

    /// Readings of this very process, taken at the lines given.
    fn readings(plan: &StepPlan, lines: &[String]) -> Readings {
        let mut readings = Readings::new(plan, std::process::id());
        for line in lines {
            readings.see(line, std::process::id());
        }
        readings
    }

    #[test]
    fn the_window_begins_with_the_line_that_ends_the_warm_up() {
        let lines: Vec<_> = (1..=6).map(|second| line(second, 100.0)).collect();
        let readings = readings(&plan(2, 3), &lines);
        assert_eq!(readings.seconds.iter().map(|second| second.second).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(readings.moments.len(), 4);
    }

    #[test]
    fn without_a_warm_up_it_begins_when_all_clients_are_connected() {
        let lines: Vec<_> = std::iter::once(STARTED.to_owned()).chain((1..=3).map(|second| line(second, 100.0))).collect();
        let readings = readings(&plan(0, 2), &lines);
        assert_eq!(readings.seconds.iter().map(|second| second.second).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(readings.moments.len(), 3);
    }

    #[test]
    fn a_lost_line_shortens_the_window_and_is_doubted() {
        let plan = plan(2, 3);
        // The line of second 2 is lost, so second 3 only begins the window: its queries are not in it.
        let Readings { seconds, moments, .. } = readings(&plan, &[line(1, 9.0), line(3, 9.0), line(4, 100.0), line(5, 100.0)]);
        assert_eq!((seconds.len(), moments.len()), (2, 3));
        let window = Window::new(moments).unwrap();
        let doubts = doubts(&plan, &Totals { errors: 3, reconnects: 2, ..Totals::default() }, &seconds, &window).join("; ");
        for wanted in ["2 per-second lines instead of 3", "ignored 3 errors", "reconnected 2 times", "s long instead of 3"] {
            assert!(doubts.contains(wanted), "{doubts}");
        }
    }

    #[test]
    fn rates_are_weighted_by_the_time_between_readings() {
        let Readings { seconds, mut moments, .. } = readings(&plan(1, 2), &[line(1, 0.0), line(2, 100.0), line(3, 400.0)]);
        let start = moments[0].at;
        // The second line came late: its rate holds for 1.5 s, the next one's for 0.5 s.
        moments[1].at = start + std::time::Duration::from_millis(1500);
        moments[2].at = start + std::time::Duration::from_millis(2000);
        let window = Window::new(moments).unwrap();
        let metrics = metrics(&Totals::default(), &seconds, &window).unwrap();
        assert!((metrics[&Metric::Qps] - 175.0).abs() < 1e-9 && (metrics[&Metric::Tps] - 87.5).abs() < 1e-9, "{metrics:?}");
        assert!(!metrics.contains_key(&Metric::LatencyP99), "no histogram, no percentile of it");
    }

    #[test]
    fn no_query_no_metrics() {
        let Readings { seconds, moments, .. } = readings(&plan(1, 1), &[line(1, 5.0), line(2, 0.0)]);
        assert!(metrics(&Totals::default(), &seconds, &Window::new(moments).unwrap()).is_none());
    }
}
