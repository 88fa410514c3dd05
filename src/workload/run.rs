//! Runs one step and measures its window.

use std::collections::BTreeMap;

use anyhow::Context;

use crate::measure::{Metric, Moment, Window};
use crate::server::{Area, RunningServer};

use super::command::{StepPlan, command};
use super::parse::{Report, Second, parse, second};

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
    /// One value per metric.
    pub metrics: BTreeMap<Metric, f64>,
    /// Reasons not to count the sample; empty when there is none.
    pub doubts: Vec<String>,
}

/// Runs a step on a server that is at rest.
///
/// dbisect reads the client's per-second lines as they are printed and takes a reading of all
/// counters at each, from the line that ends the warm-up to the line that ends the window. All
/// connections live throughout, so queries and counters refer to one and the same window.
///
/// # Errors
/// When the client cannot be run or gives up, its output is not whole, or the server ends.
pub fn run_step(plan: &StepPlan, server: &RunningServer, area: &Area) -> anyhow::Result<StepRun> {
    let (first, last) = (plan.warmup, plan.warmup + plan.time);
    let program = command(plan, server.endpoint(), area)?;
    let command = program.command_line();
    let mut moments = Vec::new();
    let mut lost = None;
    let result = program.lines(|client, line| {
        let at = second(line).ok().flatten().map(|second| second.second);
        if at.is_some_and(|at| (first..=last).contains(&at)) {
            match Moment::now(server.pid(), client) {
                Ok(moment) => moments.push(moment),
                Err(error) => lost = Some(error),
            }
        }
    });
    if let Err(error) = &result
        && !error.is_interrupt()
    {
        // The client fails as well when the server dies, and then the server's word counts.
        server.check()?;
    }
    let output = result.with_context(|| format!("the step {} failed", plan.step.name))?.output;
    server.check()?;
    if let Some(error) = lost {
        return Err(error.context(format!("the step {} could not be measured", plan.step.name)));
    }
    let report = parse(&output).with_context(|| format!("the step {} failed", plan.step.name))?;
    let window = Window::new(moments).with_context(|| format!("sysbench printed no two per-second lines in the window of {}, from second {first} to {last}", plan.step.name))?;
    let seconds: Vec<_> = report.seconds.iter().copied().filter(|second| second.second > first && second.second <= last).collect();
    let (queries, transactions) = seconds.iter().fold((0.0, 0.0), |(queries, transactions), second| (queries + second.qps, transactions + second.tps));
    anyhow::ensure!(queries > 0.0, "the step {} answered no query in its window", plan.step.name);
    let mut metrics = window.metrics(queries);
    #[expect(clippy::cast_precision_loss, reason = "a number of seconds")]
    let length = seconds.len() as f64;
    metrics.extend([
        (Metric::Qps, queries / length),
        (Metric::Tps, transactions / length),
        (Metric::LatencyMean, report.totals.latency_mean),
        (Metric::LatencyP95, report.totals.latency_p95),
        (Metric::LatencyMax, report.totals.latency_max),
    ]);
    metrics.extend(report.totals.latency_p99.map(|p99| (Metric::LatencyP99, p99)));
    let doubts = doubts(plan, &report, &seconds, &window);
    Ok(StepRun { command, output, seconds, server_cpu: window.server_cpu_series(), metrics, doubts })
}

fn doubts(plan: &StepPlan, report: &Report, seconds: &[Second], window: &Window) -> Vec<String> {
    let mut doubts = window.doubts();
    if report.totals.errors > 0 {
        doubts.push(format!("sysbench ignored {} errors", report.totals.errors));
    }
    if report.totals.reconnects > 0 {
        doubts.push(format!("sysbench reconnected {} times", report.totals.reconnects));
    }
    if seconds.len() != plan.time as usize {
        doubts.push(format!("{} per-second lines instead of {}", seconds.len(), plan.time));
    }
    if (window.seconds() - f64::from(plan.time)).abs() > 0.25 {
        doubts.push(format!("the window was {:.2} s long instead of {}", window.seconds(), plan.time));
    }
    doubts
}
