//! What sysbench 1.0.20 printed. Raw output is kept by the caller, so parsing can be redone.

/// Line that sysbench prints when all clients are connected and begin.
pub(super) const STARTED: &str = "Threads started!";

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
        latency_p99: percentile(&histogram(output)?, 0.99),
        latency_max: number(field(last, output, "         max:", "longest response time")?, "the longest response time")?,
    };
    field(last, output, "    execution time (avg/stddev):", "end of the final report")?;
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

/// Buckets of the histogram before the final report: upper end in milliseconds, and count. Empty
/// when no histogram was asked for.
fn histogram(output: &str) -> Result<Vec<(f64, f64)>, ParseError> {
    let Some((_, rest)) = output.rsplit_once("Latency histogram (values are in milliseconds)\n") else { return Ok(Vec::new()) };
    let mut buckets = Vec::new();
    for line in rest.lines().skip(1).take_while(|line| !line.trim().is_empty()) {
        // Another thread prints the last per-second line, maybe between two buckets.
        if line.starts_with("[ ") {
            continue;
        }
        let malformed = || ParseError::Malformed { line: line.to_owned(), what: "a bucket of the histogram" };
        let (value, rest) = line.split_once('|').ok_or_else(malformed)?;
        let value = value.trim().parse().map_err(|_| malformed())?;
        let count = rest.split_whitespace().last().and_then(|count| count.parse().ok()).ok_or_else(malformed)?;
        buckets.push((value, count));
    }
    Ok(buckets)
}

/// A percentile of a histogram: the upper end of the bucket in which it falls, as sysbench itself
/// does it. The buckets are 1 to 2% wide.
fn percentile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let total: f64 = buckets.iter().map(|(_, count)| count).sum();
    let mut seen = 0.0;
    buckets.iter().find_map(|(value, count)| {
        seen += count;
        (total > 0.0 && seen >= share * total).then_some(*value)
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
    fn per_second_lines_add_up_to_what_a_checkpoint_counted() {
        // Checkpoints after 2 and 7 seconds: the second one counted exactly the lines 3 to 7. The line
        // of second 2 stands in the middle of the first checkpoint's report.
        let text = data("read-only-two-checkpoints.txt");
        let report = parse(&text).unwrap();
        let checkpoint = text.split("[ 7s ] Checkpoint report:").nth(1).unwrap();
        let counted: f64 = field(checkpoint, &text, "    queries:", "queries").unwrap().split_whitespace().next().unwrap().parse().unwrap();
        let lines: Vec<_> = report.seconds.iter().filter(|second| (3..=7).contains(&second.second)).collect();
        let sum: f64 = lines.iter().map(|second| second.qps).sum();
        assert_eq!(lines.len(), 5);
        assert!((sum / counted - 1.0).abs() < 0.001, "{sum} of {counted}");
        assert!(report.seconds.iter().any(|second| second.second == 2), "{:?}", report.seconds);
    }

    #[test]
    fn percentiles_agree_with_those_of_sysbench() {
        for name in ["point-query.txt", "read-write-4-threads.txt", "deadlocks.txt"] {
            let text = data(name);
            let totals = parse(&text).unwrap().totals;
            let p95 = percentile(&histogram(&text).unwrap(), 0.95).unwrap();
            assert!((p95 - totals.latency_p95).abs() <= 0.005 + 0.0005, "{name}: {p95}, and sysbench says {}", totals.latency_p95);
        }
    }

    #[test]
    fn percentiles_by_hand() {
        let buckets = [(1.0, 50.0), (2.0, 49.0), (9.0, 1.0)];
        let at = |share| percentile(&buckets, share);
        assert_eq!((at(0.5), at(0.51), at(0.99), at(1.0)), (Some(1.0), Some(2.0), Some(2.0), Some(9.0)));
        assert_eq!(percentile(&[], 0.99), None);
    }

    #[test]
    fn a_line_between_buckets_is_skipped_and_a_broken_bucket_is_an_error() {
        let text = data("point-query.txt");
        let whole = histogram(&text).unwrap();
        let (at, _) = text.match_indices(" |*").last().unwrap();
        let line = text[..at].rfind('\n').unwrap() + 1;
        let with = |inserted: &str| format!("{}{inserted}\n{}", &text[..line], &text[line..]);
        let second = "[ 6s ] thds: 1 tps: 9.00 qps: 9.00 (r/w/o: 9.00/0.00/0.00) lat (ms,95%): 0.19 err/s: 0.00 reconn/s: 0.00";
        assert_eq!(histogram(&with(second)).unwrap(), whole);
        assert!(matches!(parse(&with("   0.1 | x y")), Err(ParseError::Malformed { what: "a bucket of the histogram", .. })));
    }

    #[test]
    fn ignored_errors_are_counted() {
        let report = parse(&data("deadlocks.txt")).unwrap();
        assert_eq!((report.totals.errors, report.totals.reconnects), (160, 0));
        assert!(report.seconds.iter().all(|second| second.errors > 30.0), "{:?}", report.seconds);
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
        let error = parse(&data("no-server.txt")).unwrap_err();
        assert!(matches!(&error, ParseError::Fatal(text) if text.contains("Connection to database failed")), "{error}");
        let error = parse(&data("wrong-driver.txt")).unwrap_err();
        assert!(matches!(&error, ParseError::Fatal(text) if text.contains("nosuch")), "{error}");
    }

    #[test]
    fn every_truncation_is_an_error_that_quotes_the_last_line() {
        for name in ["point-query.txt", "read-only-two-checkpoints.txt"] {
            let whole = data(name);
            // The last line but the figures: cut in them, the output is whole but for a digit.
            let end = whole.rfind("execution time (avg/stddev):").unwrap();
            for cut in (0..end).filter(|cut| whole.is_char_boundary(*cut)) {
                // Cut within a number, a line is still a line; a report of the second checkpoint is one
                // more report, and must not be taken for the last.
                assert!(parse(&whole[..cut]).is_err(), "{name}, cut at {cut} of {}", whole.len());
            }
        }
        let whole = data("point-query.txt");
        let cut = whole.rfind("         max:").unwrap();
        let error = parse(&whole[..cut]).unwrap_err().to_string();
        assert!(error.contains("no 95th percentile") || error.contains("no longest response time"), "{error}");
        assert!(error.contains("avg:"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(\\[ ?[0-9]{0,3}s \\] (thds: [0-9a-z]? )?(tps: [0-9.x]{0,5} )?(qps: )?|SQL statistics:\\n|    queries: *[0-9a-z]{0,4}\\n|Latency histogram\\n| [0-9.]+ \\|\\*+ [0-9]+\\n|\\PC)*") {
            let _ = parse(&text);
        }
    }
}
