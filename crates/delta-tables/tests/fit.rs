//! Fitted tables: they hit what they promise on rows that are not normal, and cost less than a naive choice.

use proptest::prelude::*;
use qrita_delta_tables::{DeltaTables, Error, Fitter, Provenance, normal};

/// splitmix64: the tests need the same rows on every machine.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// A row with what a lookup and a gather need, computed apart from the crate.
struct Row {
    logits: Vec<f32>,
    sigma: f64,
    /// The finite logits, from the largest down, as (y − μ)/σ.
    standard: Vec<f64>,
    /// The softmax mass of the first i of them, over the largest weight.
    mass: Vec<f64>,
}

impl Row {
    fn new(logits: Vec<f32>) -> Self {
        let mut finite: Vec<f64> = logits.iter().map(|&y| f64::from(y)).filter(|y| y.is_finite()).collect();
        finite.sort_by(|a, b| b.total_cmp(a));
        let n = finite.len() as f64;
        let mean = finite.iter().sum::<f64>() / n;
        let sigma = (finite.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n).sqrt();
        let mut mass = vec![0.0];
        for y in &finite {
            mass.push(mass[mass.len() - 1] + (y - finite[0]).exp());
        }
        let standard = finite.iter().map(|y| (y - mean) / sigma).collect();
        Self { logits, sigma, standard, mass }
    }

    /// How many logits lie above μ + δσ.
    fn gather(&self, delta: f64) -> usize {
        self.standard.partition_point(|&z| z > delta)
    }

    fn hits_k(&self, k: u32, delta: f64) -> bool {
        self.gather(delta) >= k as usize
    }

    fn hits_p(&self, p: f32, delta: f64) -> bool {
        self.mass[self.gather(delta)] >= f64::from(p) * self.mass[self.standard.len()]
    }
}

/// Rows with a long right tail, of different lengths and scales, and `odd` flat ones, which have no tail at all.
fn rows(count: usize, odd: usize) -> Vec<Row> {
    let mut random = Random(7);
    (0..count)
        .map(|i| {
            let scale = 1.0 + 1.5 * random.uniform();
            let shift = 30.0 * random.uniform() - 15.0;
            let tail = 0.01 + 0.02 * random.uniform();
            let logits = (0..VOCAB).map(|_| {
                let y = if i < odd {
                    3.0 * random.uniform()
                } else if random.uniform() < tail {
                    2.0 + 2.0 * random.normal()
                } else {
                    random.normal()
                };
                (shift + scale * y) as f32
            });
            Row::new(logits.collect())
        })
        .collect()
}

const VOCAB: usize = 1000;
const KS: [u32; 7] = [1, 2, 5, 20, 50, 131, 400];
const PS: [f32; 6] = [0.1, 0.5, 0.8, 0.9, 0.95, 0.99];

fn fitted(rows: &[Row], coverage: f64) -> DeltaTables {
    let mut fitter = Fitter::new("made-up rows");
    for row in rows {
        fitter.push(&row.logits);
    }
    fitter.finish(coverage).expect("rows with a scale")
}

/// How many rows hit, and how many candidates all rows gather.
fn tally(rows: &[Row], hit: impl Fn(&Row, f64) -> bool, delta: impl Fn(&Row) -> f64) -> (usize, usize) {
    let hits = rows.iter().filter(|row| hit(row, delta(row))).count();
    let candidates = rows.iter().map(|row| row.gather(delta(row))).sum();
    (hits, candidates)
}

#[test]
fn a_fit_reaches_its_coverage_with_fewer_candidates_than_naive_choices() {
    let rows = rows(2000, 2);
    let (tables, all) = (fitted(&rows, 0.999), fitted(&rows, 1.0));
    let law = DeltaTables::normal();
    let delta = |tables: &DeltaTables, k| f64::from(tables.top_k(k, VOCAB));
    let gathered = |tables: &DeltaTables, k| tally(&rows, |row, delta| row.hits_k(k, delta), |_| delta(tables, k));
    for k in KS {
        let (hits, candidates) = gathered(&tables, k);
        assert!(hits >= 1998, "k = {k}: {hits} of 2000");
        let (all_hits, all_candidates) = gathered(&all, k);
        assert_eq!(all_hits, 2000, "k = {k}");
        assert!(candidates < all_candidates, "k = {k}: {candidates}, or {all_candidates} for all rows");
    }
    let misses: usize = KS.map(|k| 2000 - gathered(&law, k).0).iter().sum();
    assert!(misses > 1000, "these rows are too easy: the law misses {misses}");

    // Without a fit one lowers the law by a margin, the same for each k, until enough rows hit.
    let margin = (0..400)
        .map(|i| 0.05 * f64::from(i))
        .find(|&margin| {
            let hits = |k: u32| tally(&rows, |row, delta| row.hits_k(k, delta), |_| delta(&law, k) - margin).0;
            KS.into_iter().all(|k| hits(k) >= 1998)
        })
        .expect("lowered far enough, everything is gathered");
    let total = |tables: &DeltaTables, margin: f64| -> usize {
        KS.map(|k| tally(&rows, |_, _| true, |_| delta(tables, k) - margin).1).iter().sum()
    };
    let (fit, lowered) = (total(&tables, 0.0), total(&law, margin));
    assert!(10 * fit < 9 * lowered, "fitted {fit}, law less {margin}: {lowered}");
}

#[test]
fn a_fit_reaches_its_coverage_for_top_p() {
    let rows = rows(2000, 2);
    let tables = fitted(&rows, 0.999);
    for p in PS {
        let hit = |row: &Row, delta: f64| row.hits_p(p, delta);
        let (hits, _) = tally(&rows, hit, |row| f64::from(tables.top_p(p, row.sigma as f32)));
        assert!(hits >= 1998, "p = {p}: {hits} of 2000");
    }
}

#[test]
fn a_fit_by_scale_gathers_less_than_one_delta_for_all_scales() {
    let rows = rows(2000, 0);
    let tables = fitted(&rows, 0.999);
    for p in PS {
        let hit = |row: &Row, delta: f64| row.hits_p(p, delta);
        let (hits, candidates) = tally(&rows, hit, |row| f64::from(tables.top_p(p, row.sigma as f32)));
        assert!(hits >= 1998, "p = {p}: {hits} of 2000");
        // The best δ that depends on p alone, to a hundredth.
        let (_, one_delta) = (0..600)
            .map(|i| tally(&rows, hit, |_| 3.0 - 0.01 * f64::from(i)))
            .find(|&(hits, _)| hits >= 1998)
            .expect("low enough, everything is gathered");
        assert!(10 * candidates < 9 * one_delta, "p = {p}: {candidates}, one δ {one_delta}");
    }
}

#[test]
fn a_fit_gives_up_exactly_the_rows_it_may() {
    // 100 rows that differ in how far their largest logit stands out, so each needs another δ for k = 1.
    let rows: Vec<Row> = (0..100)
        .map(|i| {
            Row::new(
                (0..100).map(|token| if token == 0 { 2.0 + 0.05 * i as f32 } else { (token % 3) as f32 }).collect(),
            )
        })
        .collect();
    for (coverage, hit) in [(1.0, 100), (0.75, 75), (0.5, 50), (0.25, 25)] {
        let delta = f64::from(fitted(&rows, coverage).top_k(1, 100));
        let (hits, _) = tally(&rows, |row, delta| row.hits_k(1, delta), |_| delta);
        assert_eq!(hits, hit, "coverage {coverage}");
    }
}

#[test]
fn a_hand_made_row_gives_the_delta_it_needs() {
    // Mean 0, σ = √2 ; the 2nd largest of 5 is 1, at 1/√2 standard deviations.
    let mut fitter = Fitter::new("by hand");
    fitter.push(&[0.0, 2.0, -2.0, 1.0, -1.0]);
    let tables = fitter.finish(1.0).expect("one row");
    let below = std::f64::consts::FRAC_1_SQRT_2 - f64::from(tables.top_k(2, 5));
    assert!((1.0 / 65536.0..=2.0 / 65536.0).contains(&below), "{below}");
    // Weights e², e, 1, … of e²: shares 0.64, 0.23, 0.09. p = 0.6 needs the first, 0.8 the second; the stored offset is from σ.
    let sigma = std::f32::consts::SQRT_2;
    for (p, logit) in [(0.6, 2.0), (0.8, 1.0), (0.9, 0.0)] {
        let below = logit / std::f64::consts::SQRT_2 - f64::from(tables.top_p(p, sigma));
        assert!((0.9 / 65536.0..=2.1 / 65536.0).contains(&below), "p = {p}: {below}");
    }
}

/// A row of two values as often each, ±σ. At the scales used here the upper value holds 0.98 to 0.99 of the mass, so the row
/// needs δ = 1 for p = 0.9 and δ = −1 for p = 0.99.
fn two_values(sigma: f32) -> Vec<f32> {
    (0..64).map(|i| if i % 2 == 0 { sigma } else { -sigma }).collect()
}

fn fitted_to(rows: &[Vec<f32>], coverage: f64) -> DeltaTables {
    let mut fitter = Fitter::new("two values");
    rows.iter().for_each(|row| fitter.push(row));
    fitter.finish(coverage).expect("rows with a scale")
}

#[test]
fn a_cell_without_rows_keeps_the_law_and_its_neighbours_lend_theirs() {
    let law = DeltaTables::normal();
    // In the lower half of the cell from 2 to 2.25, then in its upper half: an estimate that falls into the cell next to that
    // half still reads the row's offset, and the cells beyond have seen no row.
    for (own, near, far) in [(2.05, 1.95, [0.1, 1.7, 2.3, 9.0]), (2.2, 2.3, [0.1, 1.95, 2.6, 9.0])] {
        let tables = fitted_to(&[two_values(own)], 1.0);
        for sigma in [own, near] {
            let above = tables.top_p(0.99, sigma) - (-1.0 - own + sigma);
            assert!((-1e-3..0.0).contains(&above), "row {own}, estimate {sigma}: {above}");
        }
        for sigma in far {
            assert_eq!(tables.top_p(0.99, sigma), law.top_p(0.99, sigma), "row {own}, σ = {sigma}");
        }
    }
}

#[test]
fn a_cell_that_only_neighbours_reach_is_no_higher_than_the_law() {
    // For p = 0.9 the row needs more than the law's 2.05 − 1.28.
    let (tables, law) = (fitted_to(&[two_values(2.05)], 1.0), DeltaTables::normal());
    assert!(tables.top_p(0.9, 2.05) > law.top_p(0.9, 2.05));
    assert_eq!(tables.top_p(0.9, 1.95), law.top_p(0.9, 1.95));
}

#[test]
fn neighbours_are_not_given_up_for_the_rows_of_a_cell() {
    // Scale 1.95 from one low value among 64: it needs the upper value, 0.126 standard deviations up.
    let low: Vec<f32> = (0..64).map(|i| if i == 0 { -15.72 } else { 0.0 }).collect();
    let mut rows = vec![two_values(2.05); 10];
    rows.push(low);
    // 1 of 11 may be missed, but it is 1 of 1 of the rows next to the cell.
    let delta = fitted_to(&rows, 0.9).top_p(0.9, 2.05);
    assert!((delta - (0.126 - 1.95 + 2.05)).abs() < 0.01, "{delta}");
}

#[test]
fn the_last_cell_fits_delta_itself() {
    // Two rows far apart in scale and both far past the last edge need the same δ, and get it.
    let tables = fitted_to(&[two_values(9.0), two_values(40.0)], 1.0);
    for sigma in [9.0, 20.0, 40.0] {
        let below = 1.0 - tables.top_p(0.9, sigma);
        assert!((0.0..1e-3).contains(&below), "σ = {sigma}: {below}");
    }
}

#[test]
fn scales_past_the_grid_are_fitted_too() {
    let mut random = Random(3);
    let rows: Vec<Row> =
        (0..50).map(|i| Row::new((0..500).map(|_| (f64::from(6 + i) * random.normal()) as f32).collect())).collect();
    let tables = fitted(&rows, 1.0);
    for p in PS {
        for row in &rows {
            let delta = f64::from(tables.top_p(p, row.sigma as f32));
            assert!(row.hits_p(p, delta), "p = {p}, σ = {}", row.sigma);
        }
    }
}

#[test]
fn disallowed_tokens_count_in_the_ratio_and_nowhere_else() {
    let logits = |i: i32| {
        if i % 2 == 0 { (i as f32).sqrt() } else { f32::NEG_INFINITY }
    };
    let row = Row::new((0..1000).map(logits).collect());
    let tables = fitted(std::slice::from_ref(&row), 1.0);
    for k in [1, 10, 300, 499] {
        let gathered = row.gather(f64::from(tables.top_k(k, 1000)));
        assert!((k as usize..=k as usize + 1 + k as usize / 20).contains(&gathered), "{gathered} for {k}");
    }
    // More than there are finite logits: all of them.
    assert_eq!(row.gather(f64::from(tables.top_k(700, 1000))), 500);
}

#[test]
fn rows_without_a_scale_are_skipped_and_counted() {
    let mut fitter = Fitter::new("odd rows");
    for row in
        [&[][..], &[1.0], &[f32::NAN, 1.0], &[2.0, 2.0, 2.0], &[0.0, -0.0], &[f32::INFINITY, f32::NEG_INFINITY, 0.5]]
    {
        fitter.push(row);
    }
    assert_eq!((fitter.rows(), fitter.skipped()), (0, 6));
    assert!(matches!(fitter.clone().finish(0.999), Err(Error::NoRows { skipped: 6 })));

    fitter.push(&[1.0, f32::NAN, 3.0]);
    let tables = fitter.finish(0.999).expect("one row has a scale");
    match tables.provenance() {
        Provenance::Fitted { description, rows, skipped, coverage, .. } => {
            assert_eq!((description.as_str(), *rows, *skipped, *coverage), ("odd rows", 1, 6, 0.999));
        }
        other => panic!("not fitted: {other:?}"),
    }
}

#[test]
fn a_coverage_that_is_no_share_is_refused() {
    let mut fitter = Fitter::new("any");
    fitter.push(&[1.0, 2.0]);
    for coverage in [0.0, -0.5, 1.000_001, f64::INFINITY, f64::NAN] {
        assert!(matches!(fitter.clone().finish(coverage), Err(Error::Coverage { .. })), "{coverage}");
    }
    assert!(fitter.finish(f64::MIN_POSITIVE).is_ok());
}

#[test]
fn extreme_rows_are_fitted() {
    for logits in [
        vec![f32::MAX, f32::MIN],
        vec![f32::MAX, f32::MAX, f32::MAX.next_down()],
        vec![0.0, f32::from_bits(1)],
        vec![f32::from_bits(1), -f32::from_bits(1), 0.0, 1e-40],
    ] {
        let row = Row::new(logits);
        let tables = fitted(std::slice::from_ref(&row), 1.0);
        let vocab = row.logits.len();
        assert!(row.gather(f64::from(tables.top_k(1, vocab))) >= 1, "{:?}", row.logits);
        assert!(row.hits_p(0.9, f64::from(tables.top_p(0.9, row.sigma as f32))), "{:?}", row.logits);
    }
}

proptest! {
    #[test]
    fn any_rows_fit_and_full_coverage_hits_each(
        bits in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..40), 1..6),
        p in 1e-3_f32..0.999_99,
    ) {
        let mut fitter = Fitter::new("any bits");
        let rows: Vec<Vec<f32>> = bits.iter().map(|row| row.iter().copied().map(f32::from_bits).collect()).collect();
        for row in &rows {
            fitter.push(row);
        }
        prop_assert_eq!(fitter.rows() + fitter.skipped(), rows.len() as u64);
        match fitter.finish(1.0) {
            Err(error) => {
                let no_rows = matches!(error, Error::NoRows { .. });
                prop_assert!(no_rows);
            }
            Ok(tables) => {
                for row in rows.into_iter().map(Row::new).filter(|row| row.sigma > 0.0) {
                    let vocab = row.logits.len();
                    let finite = row.gather(f64::NEG_INFINITY);
                    for k in 1..vocab as u32 {
                        let gathered = row.gather(f64::from(tables.top_k(k, vocab)));
                        prop_assert!(gathered >= finite.min(k as usize));
                    }
                    prop_assert!(row.hits_p(p, f64::from(tables.top_p(p, row.sigma as f32))));
                }
            }
        }
    }

    #[test]
    fn fitted_lookups_are_monotone_and_below_the_ceiling(seed: u64, p in 0_f32..1.0, more in 0_f32..0.2, sigma in 0_f32..10.0) {
        let mut random = Random(seed);
        let mut fitter = Fitter::new("random");
        for _ in 0..8 {
            let scale = 5.0 * random.uniform();
            let row: Vec<f32> = (0..50).map(|_| (scale * random.normal().powi(3)) as f32).collect();
            fitter.push(&row);
        }
        let tables = fitter.finish(0.9).expect("rows with a scale");
        prop_assert!(tables.top_p(p + more, sigma) <= tables.top_p(p, sigma));
        prop_assert!(tables.top_p(p, sigma) <= normal::TOP_P_CEILING);
        for k in 1..50 {
            prop_assert!(tables.top_k(k + 1, 50) <= tables.top_k(k, 50));
        }
    }
}
