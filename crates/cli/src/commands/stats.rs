//! `qrita stats`: what the logits of a file look like, and how well each truncation does on them (paper, Table 1): each alone,
//! and what the backend's own call makes of the rows.

use std::io::{self, Write};

use qrita::{Logits, Outcome, Outputs, Params, Plan, Row, Sampler, Truncation};
use serde::Serialize;

use crate::args::{StatsArgs, StatsFormat};
use crate::failure::Failure;
use crate::job::{Batch, Progress, batches, sampler};
use crate::output::jsonl;
use crate::output::sink::Sink;
use crate::output::table;
use crate::parameters::check;
use crate::source::Source;

/// Those that this build has.
const TRUNCATIONS: &[(&str, Truncation)] = if cfg!(feature = "truncation") {
    &[
        ("paper", Truncation::Paper),
        ("gaussian", Truncation::Gaussian),
        ("quantile", Truncation::Quantile),
        ("adaptive", Truncation::Adaptive),
    ]
} else {
    &[]
};

pub(crate) fn run(args: StatsArgs) -> Result<(), Failure> {
    let base = Params::default().temperature(args.temperature);
    check(&base.top_p(args.top_p))?;
    let cases = cases(base, args.top_k, args.top_p);
    let source = Source::open(&args.input.file)?;
    let contents = source.contents()?;
    let batches = batches(&source, &contents, &args.input)?;
    let mut sampler = sampler(&args.engine, Plan::default())?;
    // Each row is described once, and for each case filtered, called and truncated in every way.
    let passes = 1 + cases.len() as u64 * (2 + TRUNCATIONS.len() as u64);
    let progress = Progress::new(&batches, passes, false);
    let mut sink = Sink::open(None)?;
    for batch in &batches {
        let stats = study(batch, &cases, &mut sampler, &progress)?;
        sink.write(|out| match args.format {
            StatsFormat::Table => print(out, batch, &stats),
            StatsFormat::Jsonl => jsonl::write(out, &stats),
        })?;
    }
    sink.finish()
}

/// A filter to study, and its name.
type Case = (String, Params<'static>);

fn cases(base: Params<'static>, top_k: u32, top_p: f32) -> Vec<Case> {
    let (k, p) = (top_k > 0, top_p < 1.0);
    let mut cases = Vec::new();
    if k {
        cases.push((format!("top-k {top_k}"), base.top_k(top_k)));
    }
    if p {
        cases.push((format!("top-p {top_p}"), base.top_p(top_p)));
    }
    if k && p {
        cases.push((format!("top-k {top_k}, top-p {top_p}"), base.top_k(top_k).top_p(top_p)));
    }
    cases
}

/// What is known of a tensor. The names and order of the fields are the JSON form.
#[derive(Debug, Serialize)]
struct Stats<'a> {
    tensor: &'a str,
    rows: usize,
    vocab: usize,
    dtype: &'static str,
    /// What truncates and filters.
    backend: &'static str,
    device: String,
    /// Over rows, of finite logits.
    mean: Range,
    sigma: Range,
    max: Range,
    nan: u64,
    pos_inf: u64,
    neg_inf: u64,
    filters: Vec<FilterStats<'a>>,
}

/// The least and the largest of some numbers; none of no numbers.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Range {
    min: Option<f64>,
    max: Option<f64>,
}

impl Range {
    fn add(&mut self, value: f64) {
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
    }
}

#[derive(Debug, Serialize)]
struct FilterStats<'a> {
    filter: &'a str,
    kept: Option<Quantiles>,
    truncations: Vec<TruncationStats>,
    call: CallStats,
}

/// How many tokens rows keep.
#[derive(Debug, Serialize)]
struct Quantiles {
    min: u32,
    median: u32,
    p95: u32,
    max: u32,
    mean: f64,
}

impl Quantiles {
    fn new(mut kept: Vec<u32>) -> Option<Quantiles> {
        kept.sort_unstable();
        let last = kept.len().checked_sub(1)?;
        let at = |share: f64| kept[(share * last as f64).round() as usize];
        let mean = kept.iter().map(|&kept| f64::from(kept)).sum::<f64>() / kept.len() as f64;
        Some(Quantiles { min: at(0.0), median: at(0.5), p95: at(0.95), max: at(1.0), mean })
    }
}

#[derive(Debug, Serialize)]
struct TruncationStats {
    truncation: &'static str,
    /// The share of rows whose gathered set holds the answer; none of no rows.
    hit_rate: Option<f64>,
    /// How many candidates are gathered on average: the paper's `N_t`.
    n_t: Option<f64>,
}

/// What the whole call under the default plan makes of the rows.
#[derive(Debug, Serialize)]
struct CallStats {
    /// The share of rows that what it gathers decides.
    hit_rate: Option<f64>,
    /// How many candidates it gathers on average.
    n_t: Option<f64>,
    /// Where top-p is over the mass of the whole row: of the rows whose gathered set holds the kept, the share whose cut is the
    /// same for all masses within the bounds of the backend.
    certified: Option<f64>,
}

impl CallStats {
    /// Of this many rows, with a count that may be without any.
    fn new(counted: &Called, rows: u64, by_mass: bool) -> CallStats {
        let share = |count: u64, of: u64| (of > 0).then(|| count as f64 / of as f64);
        let Called { hits, straddled, gathered } = *counted;
        CallStats {
            hit_rate: share(hits, rows),
            n_t: share(gathered, rows),
            certified: if by_mass { share(hits, hits + straddled) } else { None },
        }
    }
}

fn study<'a>(
    batch: &Batch<'a>,
    cases: &'a [Case],
    sampler: &mut Sampler,
    progress: &Progress,
) -> Result<Stats<'a>, Failure> {
    let mut stats = Stats {
        tensor: batch.tensor.name(),
        rows: batch.rows.len(),
        vocab: batch.tensor.vocab(),
        dtype: batch.tensor.dtype().name(),
        backend: sampler.backend_name(),
        device: sampler.description(),
        mean: Range::default(),
        sigma: Range::default(),
        max: Range::default(),
        nan: 0,
        pos_inf: 0,
        neg_inf: 0,
        filters: Vec::new(),
    };
    let mut tallies: Vec<Tally> = cases.iter().map(|_| Tally::default()).collect();
    for chunk in batch.chunks() {
        let rows = batch.tensor.read(chunk.clone());
        let logits = rows.logits()?;
        for row in 0..logits.rows() {
            stats.describe(logits.row(row));
        }
        progress.advance(chunk.len());
        for ((_, params), tally) in cases.iter().zip(&mut tallies) {
            tally.add(&logits, params, sampler)?;
            progress.advance(chunk.len() * (2 + TRUNCATIONS.len()));
        }
    }
    let rows = batch.rows.len() as u64;
    let share = |count: u64| (rows > 0).then(|| count as f64 / rows as f64);
    let filters = cases.iter().zip(tallies).map(|((filter, params), tally)| FilterStats {
        filter,
        call: CallStats::new(&tally.call, rows, params.top_k == 0.into()),
        kept: Quantiles::new(tally.kept),
        truncations: TRUNCATIONS
            .iter()
            .zip(tally.truncations)
            .map(|(&(truncation, _), (hits, gathered))| TruncationStats {
                truncation,
                hit_rate: share(hits),
                n_t: share(gathered),
            })
            .collect(),
    });
    stats.filters = filters.collect();
    Ok(stats)
}

/// What is counted of one filter.
#[derive(Debug, Default)]
struct Tally {
    kept: Vec<u32>,
    /// Hits and gathered candidates of each truncation.
    truncations: [(u64, u64); TRUNCATIONS.len()],
    call: Called,
}

/// Rows by what came of them in whole calls, and candidates.
#[derive(Debug, Default)]
struct Called {
    hits: u64,
    straddled: u64,
    gathered: u64,
}

impl Tally {
    fn add(&mut self, logits: &Logits<'_>, params: &Params<'_>, sampler: &mut Sampler) -> Result<(), Failure> {
        let done = self.kept.len();
        self.kept.resize(done + logits.rows(), 0);
        sampler.set_plan(Plan::default());
        let mut outputs = Outputs { kept: Some(&mut self.kept[done..]), ..Outputs::default() };
        sampler.run((*logits).into(), params, &mut outputs)?;
        for row in sampler.gather(logits, params)? {
            match row.outcome {
                Outcome::Hit => self.call.hits += 1,
                Outcome::Straddled => self.call.straddled += 1,
                Outcome::Missed => {}
            }
            self.call.gathered += u64::from(row.count);
        }
        for (&(_, truncation), (hits, gathered)) in TRUNCATIONS.iter().zip(&mut self.truncations) {
            sampler.set_plan(Plan { truncation, ..Plan::default() });
            for row in sampler.truncate(logits, params)? {
                *hits += u64::from(row.hit);
                *gathered += row.gathered.len() as u64;
            }
        }
        Ok(())
    }
}

impl Stats<'_> {
    fn describe(&mut self, row: Row<'_>) {
        let logits = || (0..row.len()).map(|id| row.get(id));
        let (mut count, mut sum, mut max) = (0u64, 0.0, f64::NEG_INFINITY);
        for y in logits() {
            if y.is_finite() {
                count += 1;
                sum += f64::from(y);
                max = max.max(f64::from(y));
            } else if y.is_nan() {
                self.nan += 1;
            } else if y > 0.0 {
                self.pos_inf += 1;
            } else {
                self.neg_inf += 1;
            }
        }
        if count == 0 {
            return;
        }
        let mean = sum / count as f64;
        let squares: f64 = logits().filter(|y| y.is_finite()).map(|y| (f64::from(y) - mean).powi(2)).sum();
        self.mean.add(mean);
        self.sigma.add((squares / count as f64).sqrt());
        self.max.add(max);
    }
}

fn print(out: &mut dyn Write, batch: &Batch<'_>, stats: &Stats<'_>) -> io::Result<()> {
    table::heading(out, batch)?;
    for (name, range) in [("mean", stats.mean), ("sigma", stats.sigma), ("max", stats.max)] {
        if let Range { min: Some(min), max: Some(max) } = range {
            writeln!(out, "  {name:<5}  {min:>10.3} to {max:>10.3}")?;
        }
    }
    let Stats { nan, pos_inf, neg_inf, .. } = stats;
    writeln!(out, "  not finite: {nan} NaN, {pos_inf} +inf, {neg_inf} -inf")?;
    for filter in &stats.filters {
        write!(out, "  {}: ", filter.filter)?;
        match &filter.kept {
            Some(Quantiles { min, median, p95, max, mean }) => {
                writeln!(out, "kept min {min}, median {median}, 95 % {p95}, max {max}, mean {mean:.1}")?;
            }
            None => writeln!(out, "no rows")?,
        }
        if !filter.truncations.is_empty() {
            writeln!(out, "    {:<10}  {:>8}  {:>10}", "truncation", "hit rate", "N_t")?;
        }
        for TruncationStats { truncation, hit_rate, n_t } in &filter.truncations {
            if let (Some(hit_rate), Some(n_t)) = (hit_rate, n_t) {
                writeln!(out, "    {truncation:<10}  {hit_rate:>8.4}  {n_t:>10.1}")?;
            }
        }
        let CallStats { hit_rate, n_t, certified } = filter.call;
        if let (Some(hit_rate), Some(n_t)) = (hit_rate, n_t) {
            write!(out, "    whole call on {}: hit rate {hit_rate:.4}, N_t {n_t:.1}", stats.backend)?;
            match certified {
                Some(certified) => writeln!(out, ", certified {certified:.4}")?,
                None => writeln!(out)?,
            }
        }
    }
    Ok(())
}
