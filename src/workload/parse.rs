//! What sysbench 1.0.20 printed. Raw output is kept by the caller, so parsing can be redone.

/// A line of the per-second report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    /// Seconds since the start.
    pub second: u32,
    /// Transactions per second.
    pub tps: f64,
    /// Queries per second.
    pub qps: f64,
    /// 95th percentile of the response time in milliseconds.
    pub latency_p95: f64,
    /// Errors per second that sysbench ignored.
    pub errors: f64,
    /// Reconnects per second.
    pub reconnects: f64,
}

/// The last report: everything since the checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Queries.
    pub queries: u64,
    /// Transactions (events).
    pub transactions: u64,
    /// Errors that sysbench ignored.
    pub errors: u64,
    /// Reconnects.
    pub reconnects: u64,
    /// Mean response time in milliseconds.
    pub latency_mean: f64,
    /// 95th percentile in milliseconds.
    pub latency_p95: f64,
    /// 99th percentile in milliseconds, from the histogram; `None` without one.
    pub latency_p99: Option<f64>,
    /// Longest response time in milliseconds.
    pub latency_max: f64,
}

/// A whole output.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Per-second lines in order.
    pub seconds: Vec<Second>,
    /// The last report.
    pub totals: Totals,
}

/// An output that is not whole, or tells of a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// sysbench said `FATAL`.
    #[error("sysbench gave up: {0}")]
    Fatal(String),
    /// The end is missing.
    #[error("the output of sysbench has no {missing}; it ends with `{last}`")]
    Truncated {
        /// What was looked for.
        missing: &'static str,
        /// Last line that is there.
        last: String,
    },
    /// A number is not one.
    #[error("the output of sysbench has the line `{line}`, in which {what} is no number")]
    Malformed {
        /// The line.
        line: String,
        /// What was looked for.
        what: &'static str,
    },
}

/// Reads an output.
///
/// # Errors
/// When sysbench gave up, or the output does not reach its end.
pub fn parse(output: &str) -> Result<Report, ParseError> {
    if let Some(line) = output.lines().find(|line| line.starts_with("FATAL:")) {
        return Err(ParseError::Fatal(line.trim_start_matches("FATAL:").trim().to_owned()));
    }
    let seconds = output.lines().filter_map(|line| second(line).transpose()).collect::<Result<Vec<_>, _>>()?;
    let last = final_report(output).ok_or_else(|| truncated(output, "final report"))?;
    let totals = Totals {
        queries: whole(field(last, output, "    queries:", "number of queries")?, "the number of queries")?,
        transactions: whole(field(last, output, "    transactions:", "number of transactions")?, "the number of transactions")?,
        errors: whole(field(last, output, "    ignored errors:", "number of errors")?, "the number of errors")?,
        reconnects: whole(field(last, output, "    reconnects:", "number of reconnects")?, "the number of reconnects")?,
        latency_mean: number(field(last, output, "         avg:", "mean response time")?, "the mean response time")?,
        latency_p95: number(field(last, output, "         95th percentile:", "95th percentile")?, "the 95th percentile")?,
        latency_p99: percentile(output, 0.99),
        latency_max: number(field(last, output, "         max:", "longest response time")?, "the longest response time")?,
    };
    if !last.contains("Threads fairness:") {
        return Err(truncated(output, "end of the final report"));
    }
    Ok(Report { seconds, totals })
}

/// The report at the end. A checkpoint's report comes before it and looks the same, so an output
/// that ends between the two must not be taken for a whole one.
fn final_report(output: &str) -> Option<&str> {
    let reports: Vec<_> = output.match_indices("SQL statistics:").map(|(at, _)| at).collect();
    let checkpoints = output.matches("Checkpoint report:").count();
    reports.last().filter(|_| reports.len() == checkpoints + 1).map(|at| &output[*at..])
}

/// One per-second line; `Ok(None)` for any other line.
pub(super) fn second(line: &str) -> Result<Option<Second>, ParseError> {
    let Some(rest) = line.strip_prefix("[ ") else { return Ok(None) };
    // The line that announces a checkpoint report begins alike.
    let Some((at, rest)) = rest.split_once("s ] thds: ") else { return Ok(None) };
    let malformed = |what: &'static str| ParseError::Malformed { line: line.to_owned(), what };
    let value = |key: &str, what: &'static str| -> Result<f64, ParseError> {
        let text = rest.split_once(key).ok_or_else(|| malformed(what))?.1.split_whitespace().next().unwrap_or_default();
        text.parse().map_err(|_| malformed(what))
    };
    Ok(Some(Second {
        second: at.trim().parse().map_err(|_| malformed("the second"))?,
        tps: value("tps: ", "tps")?,
        qps: value("qps: ", "qps")?,
        latency_p95: value("lat (ms,95%): ", "the 95th percentile")?,
        errors: value("err/s: ", "the error rate")?,
        reconnects: value("reconn/s: ", "the reconnect rate")?,
    }))
}

fn field<'a>(report: &'a str, output: &str, prefix: &str, missing: &'static str) -> Result<&'a str, ParseError> {
    let line = report.lines().find(|line| line.starts_with(prefix)).ok_or_else(|| truncated(output, missing))?;
    Ok(line[prefix.len()..].trim())
}

fn whole(text: &str, what: &'static str) -> Result<u64, ParseError> {
    text.split_whitespace().next().unwrap_or_default().parse().map_err(|_| ParseError::Malformed { line: text.to_owned(), what })
}

fn number(text: &str, what: &'static str) -> Result<f64, ParseError> {
    text.parse().map_err(|_| ParseError::Malformed { line: text.to_owned(), what })
}

fn truncated(output: &str, missing: &'static str) -> ParseError {
    let last = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing").to_owned();
    ParseError::Truncated { missing, last }
}

/// A percentile of the histogram: the upper end of the bucket in which it falls. The buckets are
/// about 1.5% wide.
fn percentile(output: &str, share: f64) -> Option<f64> {
    let histogram = output.rsplit_once("Latency histogram").map(|(_, rest)| rest)?;
    let buckets: Vec<(f64, f64)> = histogram
        .lines()
        .skip(2)
        .map_while(|line| {
            let (value, rest) = line.split_once('|')?;
            Some((value.trim().parse().ok()?, rest.split_whitespace().last()?.parse().ok()?))
        })
        .collect();
    let total: f64 = buckets.iter().map(|(_, count)| count).sum();
    let mut seen = 0.0;
    buckets.into_iter().find_map(|(value, count)| {
        seen += count;
        (seen >= share * total && total > 0.0).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data(name: &str) -> String {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sysbench").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn a_real_output_is_read_whole() {
        let report = parse(&data("point-query.txt")).unwrap();
        // The last second's line is printed or not, as threads happen to be woken.
        assert_eq!(report.seconds.iter().map(|second| second.second).take(5).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert!(report.totals.queries > 1000 && report.totals.queries == report.totals.transactions, "{report:?}");
        let Totals { latency_mean, latency_p95, latency_p99: Some(p99), latency_max, .. } = report.totals else { panic!("no histogram: {report:?}") };
        assert!(latency_mean <= latency_p95 && latency_p95 <= p99 && p99 <= latency_max * 1.02, "{report:?}");
    }

    #[test]
    fn the_last_report_covers_what_follows_the_checkpoint() {
        let report = parse(&data("point-query.txt")).unwrap();
        // Checkpoint after 2 of 6 seconds: the lines of seconds 3 to 6 are the rest.
        let lines: Vec<_> = report.seconds.iter().filter(|second| second.second > 2).map(|second| second.qps).collect();
        #[expect(clippy::cast_precision_loss, reason = "a count of queries")]
        let total = report.totals.queries as f64;
        assert_eq!(lines.len(), 4);
        assert!((lines.iter().sum::<f64>() / total - 1.0).abs() < 0.001, "{lines:?} of {total}");
    }

    #[test]
    fn transactions_and_queries_are_told_apart() {
        let report = parse(&data("read-write-4-threads.txt")).unwrap();
        // Four clients, each in the middle of a transaction of 20 queries at both ends.
        assert!(report.totals.queries.abs_diff(report.totals.transactions * 20) <= 4 * 20, "{report:?}");
    }

    #[test]
    fn a_failure_is_told_in_sysbenchs_words() {
        let error = parse(&data("missing-table.txt")).unwrap_err();
        assert!(matches!(&error, ParseError::Fatal(text) if text.contains("sbtest")), "{error}");
        let error = parse(&data("server-killed.txt")).unwrap_err();
        assert!(matches!(&error, ParseError::Truncated { missing: "final report", .. }), "{error}");
        let error = parse(&data("wrong-driver.txt")).unwrap_err();
        assert!(matches!(&error, ParseError::Fatal(text) if text.contains("nosuch")), "{error}");
    }

    #[test]
    fn every_truncation_is_an_error_and_none_panics() {
        let whole = data("point-query.txt");
        let end = whole.find("execution time").unwrap();
        let fairness = whole.rfind("Threads fairness").unwrap();
        for cut in (0..whole.len()).step_by(97).filter(|cut| whole.is_char_boundary(*cut)) {
            let result = parse(&whole[..cut]);
            assert!(result.is_err() || cut > fairness.min(end), "cut at {cut} of {} was accepted: {result:?}", whole.len());
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(\\[ ?[0-9]{0,3}s \\] (thds: [0-9a-z]? )?(tps: [0-9.x]{0,5} )?(qps: )?|SQL statistics:\\n|    queries: *[0-9a-z]{0,4}\\n|Latency histogram\\n| [0-9.]+ \\|\\*+ [0-9]+\\n|\\PC)*") {
            let _ = parse(&text);
        }
    }
}
