//! The tables and their lookups.
//!
//! Grids are placed where rounding to them costs little *candidates*, not little δ. Under the normal law the gathered share
//! is the ratio itself, so a step of 1/16 octave in the ratio adds at most 2^(1/16) − 1 = 4.4 %. For top-p, δ moves by the
//! distance of grid points in `z = Φ⁻¹(p)`, and the share above δ grows by the hazard rate of the normal law (3.28 at δ = 3,
//! the ceiling) times that: a step of 1/40 adds at most 8.6 %.
//!
//! No entry is infinite: the grids end below 1, and "gather everything" is the answer of a lookup past their end.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::io::TableFile;
use crate::normal::{self, TOP_P_CEILING};

/// The ratio grid: 2^(−21 + i/16). The first ratio is one token of the largest vocabulary, 2^21.
const RATIO_OCTAVES: u32 = 21;
const RATIO_STEPS_PER_OCTAVE: u32 = 16;

/// The grid of p: Φ(−3 + i/40), up to Φ(4.75) = 1 − 1.02·10⁻⁶, where neighbours are still two f32 apart.
const P_FIRST_Z: f64 = -3.0;
const P_STEPS_PER_UNIT: u32 = 40;
const P_STEPS: u32 = 310;

/// The grid of scales, the lower edges of the cells: i/4 up to 8 nats. Real rows have 2.4 to 4.3 at temperature 1.
const SIGMA_CELLS_PER_NAT: u16 = 4;
const SIGMA_LAST_NATS: u16 = 8;

/// Half the width of a cell of scale, in nats: how far outside itself a fitted cell answers for.
pub(crate) const HALF_CELL: f32 = 0.5 / SIGMA_CELLS_PER_NAT as f32;

/// The resolution of stored values, and at least how far below the law they lie.
const STEP: f64 = 1.0 / 65536.0;

/// Where a table's numbers come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Provenance {
    /// The normal law: [`DeltaTables::normal`].
    Normal,
    /// Rows of a model: [`Fitter::finish`](crate::Fitter::finish).
    #[non_exhaustive]
    Fitted {
        /// What the rows were, in the words of whoever fitted: a file, a model, a text.
        description: String,
        /// How many rows the numbers rest on.
        rows: u64,
        /// How many rows were pushed and skipped (fewer than two finite logits, or all equal).
        skipped: u64,
        /// The share of those rows that a lookup hits, at each grid point.
        #[serde(with = "crate::io::decimal_text")]
        coverage: f64,
    },
}

/// δ for top-k and top-p, as numbers of standard deviations above a row's mean.
///
/// Values are always valid: every way to make one (generate, fit, load, deserialise) ends in the same check, and the lookups
/// rely on it. The `Default` is [`DeltaTables::normal`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "TableFile", into = "TableFile")]
pub struct DeltaTables {
    pub(crate) provenance: Provenance,
    pub(crate) top_k: TopK,
    pub(crate) top_p: TopP,
}

/// δ by ratio k/V.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopK {
    /// Strictly increasing, within (0, 1).
    #[serde(with = "crate::io::exact_f32")]
    pub(crate) ratio: Vec<f32>,
    /// One for each ratio, non-increasing.
    #[serde(with = "crate::io::exact_f32")]
    pub(crate) delta: Vec<f32>,
}

/// δ − σ/T by p and by cell of σ/T.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopP {
    /// Strictly increasing, within (0, 1).
    #[serde(with = "crate::io::exact_f32")]
    pub(crate) p: Vec<f32>,
    /// The lower edges of the cells in nats: strictly increasing, not negative. The last cell has no upper edge.
    #[serde(with = "crate::io::exact_f32")]
    pub(crate) sigma: Vec<f32>,
    /// Cell after cell, one for each p, non-increasing within a cell.
    #[serde(with = "crate::io::exact_f32")]
    pub(crate) offset: Vec<f32>,
}

impl DeltaTables {
    /// The marker by which a file is known as a delta table.
    pub const FORMAT: &'static str = "qrita-delta-tables";

    /// The version of the layout that this release writes and reads.
    pub const VERSION: u32 = 1;

    /// The tables of the normal law ([`normal::delta_k`], [`normal::delta_p`]): the paper's, with the scale added for top-p.
    ///
    /// Generated on each call, in some 0.1 ms; keep the result.
    ///
    /// ```
    /// use qrita_delta_tables::{DeltaTables, Provenance};
    /// assert_eq!(*DeltaTables::normal().provenance(), Provenance::Normal);
    /// ```
    pub fn normal() -> Self {
        let ratio = ratio_grid();
        let delta = ratio.iter().map(|&r| settle(normal::delta_k(f64::from(r)))).collect();
        let p = p_grid();
        let sigma = sigma_grid();
        let law: Vec<f32> = p.iter().map(|&p| settle(normal::delta_p(f64::from(p), 0.0))).collect();
        let offset = law.repeat(sigma.len());
        Self { provenance: Provenance::Normal, top_k: TopK { ratio, delta }, top_p: TopP { p, sigma, offset } }
    }

    /// Where the numbers come from.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// δ for keeping the first `k` of `vocab` tokens, in standard deviations of the row (arXiv 2602.01518, σ-truncation).
    ///
    /// The ratio `k/vocab` is rounded up to the grid, so the result is never above the table's law and never rises with `k`.
    /// −∞, gather everything, when the filter is off (`k = 0` or `k ≥ vocab`) and when the ratio is past the grid (from
    /// 0.96 on in the tables made here). `vocab` counts the whole row, disallowed tokens included.
    ///
    /// ```
    /// let tables = qrita_delta_tables::DeltaTables::normal();
    /// assert!(tables.top_k(50, 262_144) > tables.top_k(1000, 262_144));
    /// assert_eq!(tables.top_k(1000, 1000), f32::NEG_INFINITY);
    /// ```
    pub fn top_k(&self, k: u32, vocab: usize) -> f32 {
        if k == 0 || u64::from(k) >= vocab as u64 {
            return f32::NEG_INFINITY;
        }
        // A ratio that this division rounds down onto a grid point exceeds it by 1 part in 2^53 at most. Grid points have 24
        // bits, so up to V = 2^28 the two cannot be that close without being equal; beyond, 2^-16 outweighs it.
        let ratio = f64::from(k) / vocab as f64;
        let table = &self.top_k;
        let at = table.ratio.partition_point(|&r| f64::from(r) < ratio);
        table.delta.get(at).copied().unwrap_or(f32::NEG_INFINITY)
    }

    /// δ for keeping the top softmax mass `p` of a row, in standard deviations of the row.
    ///
    /// `sigma` is the row's standard deviation in units of the temperature (σ/T, nats): the mass depends on it. `p` is rounded
    /// up to the grid, so the result is never above the table's law and never rises with `p`; it never exceeds
    /// [`normal::TOP_P_CEILING`]. Scales above the last cell's lower edge (8 nats) count as that edge. −∞, gather everything,
    /// when the filter is off (`p ≥ 1`), when `p` is past the grid (above 1 − 10⁻⁶ in the tables made here), and when an
    /// argument is NaN or `sigma` is negative or below the grid.
    ///
    /// ```
    /// let tables = qrita_delta_tables::DeltaTables::normal();
    /// // The same p needs a higher threshold in a more peaked row.
    /// assert!(tables.top_p(0.9, 3.5) > tables.top_p(0.9, 2.5));
    /// assert_eq!(tables.top_p(1.0, 3.0), f32::NEG_INFINITY);
    /// assert_eq!(tables.top_p(0.9, f32::NAN), f32::NEG_INFINITY);
    /// ```
    pub fn top_p(&self, p: f32, sigma: f32) -> f32 {
        let table = &self.top_p;
        let (Some(cell), false) = (table.cell(sigma), p.is_nan()) else {
            return f32::NEG_INFINITY;
        };
        let at = table.p.partition_point(|&grid| grid < p);
        match table.offsets(cell).get(at) {
            Some(&offset) => {
                let delta = f64::from(table.scale_of_record(sigma)) + f64::from(offset);
                floor_f32(delta).min(TOP_P_CEILING)
            }
            None => f32::NEG_INFINITY,
        }
    }

    /// Refuses a table whose lookups could be wrong; every constructor ends here.
    pub(crate) fn check(self) -> Result<Self, Error> {
        self.top_k.check()?;
        self.top_p.check()?;
        if let Provenance::Fitted { rows, coverage, .. } = self.provenance {
            if rows == 0 {
                return Err(Error::corrupt("fitted to no rows"));
            }
            if !is_coverage(coverage) {
                return Err(Error::corrupt(format!("coverage {coverage} is not a share of rows")));
            }
        }
        Ok(self)
    }
}

impl Default for DeltaTables {
    /// [`DeltaTables::normal`].
    fn default() -> Self {
        Self::normal()
    }
}

impl TopK {
    fn check(&self) -> Result<(), Error> {
        check_share_grid("top_k.ratio", &self.ratio)?;
        check_length("top_k.delta", self.delta.len(), Some(self.ratio.len()))?;
        check_falls("top_k.delta", &self.delta)
    }
}

impl TopP {
    /// The cell that holds `sigma`; none for NaN or below the grid.
    pub(crate) fn cell(&self, sigma: f32) -> Option<usize> {
        self.sigma.partition_point(|&edge| edge <= sigma).checked_sub(1)
    }

    /// The scale that offsets are relative to: `sigma`, or the last edge above it. Under the normal law δ rises with the
    /// scale, so stopping is safe; in fitted tables the last cell's offsets are relative to its edge from the start.
    pub(crate) fn scale_of_record(&self, sigma: f32) -> f32 {
        self.sigma.last().map_or(sigma, |&last| sigma.min(last))
    }

    fn offsets(&self, cell: usize) -> &[f32] {
        self.offset.chunks_exact(self.p.len()).nth(cell).unwrap_or_default()
    }

    fn check(&self) -> Result<(), Error> {
        check_share_grid("top_p.p", &self.p)?;
        check_grid("top_p.sigma", &self.sigma)?;
        if self.sigma.iter().any(|&edge| edge < 0.0) {
            return Err(Error::corrupt("top_p.sigma has a negative scale"));
        }
        let cells = self.p.len().checked_mul(self.sigma.len());
        check_length("top_p.offset", self.offset.len(), cells)?;
        self.offset.chunks_exact(self.p.len()).try_for_each(|cell| check_falls("top_p.offset", cell))
    }
}

/// Whether `coverage` is a share of rows that a fit can aim at.
pub(crate) fn is_coverage(coverage: f64) -> bool {
    coverage > 0.0 && coverage <= 1.0
}

/// `delta` as stored: a multiple of 2^-16 (below 128 in size, where f32 has them all), at least 2^-16 below.
pub(crate) fn settle(delta: f64) -> f32 {
    floor_f32(((delta / STEP).floor() - 1.0) * STEP)
}

/// The largest f32 not above `x`.
pub(crate) fn floor_f32(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) > x { nearest.next_down() } else { nearest }
}

/// The ratios k/V that tables made here are tabulated at.
pub(crate) fn ratio_grid() -> Vec<f32> {
    (0..RATIO_OCTAVES * RATIO_STEPS_PER_OCTAVE)
        .map(|i| {
            let octave = f64::from(i) / f64::from(RATIO_STEPS_PER_OCTAVE);
            (octave - f64::from(RATIO_OCTAVES)).exp2() as f32
        })
        .collect()
}

/// The values of p that tables made here are tabulated at.
pub(crate) fn p_grid() -> Vec<f32> {
    (0..=P_STEPS).map(|i| normal::cdf(P_FIRST_Z + f64::from(i) / f64::from(P_STEPS_PER_UNIT)) as f32).collect()
}

/// The lower edges of the cells of scale, in nats, of tables made here.
pub(crate) fn sigma_grid() -> Vec<f32> {
    (0..=SIGMA_LAST_NATS * SIGMA_CELLS_PER_NAT).map(|i| f32::from(i) / f32::from(SIGMA_CELLS_PER_NAT)).collect()
}

fn check_grid(name: &str, grid: &[f32]) -> Result<(), Error> {
    if grid.is_empty() {
        return Err(Error::corrupt(format!("{name} is empty")));
    }
    check_finite(name, grid)?;
    match grid.windows(2).position(|pair| pair[0] >= pair[1]) {
        Some(i) => Err(Error::corrupt(format!("{name} does not increase after entry {i}"))),
        None => Ok(()),
    }
}

fn check_share_grid(name: &str, grid: &[f32]) -> Result<(), Error> {
    check_grid(name, grid)?;
    if grid.iter().all(|&share| share > 0.0 && share < 1.0) {
        Ok(())
    } else {
        Err(Error::corrupt(format!("{name} leaves (0, 1)")))
    }
}

fn check_length(name: &str, found: usize, expected: Option<usize>) -> Result<(), Error> {
    if Some(found) == expected {
        Ok(())
    } else {
        Err(Error::corrupt(format!("{name} has {found} entries, which does not match its grid")))
    }
}

fn check_falls(name: &str, values: &[f32]) -> Result<(), Error> {
    check_finite(name, values)?;
    match values.windows(2).position(|pair| pair[0] < pair[1]) {
        Some(i) => Err(Error::corrupt(format!("{name} rises after entry {i}"))),
        None => Ok(()),
    }
}

fn check_finite(name: &str, values: &[f32]) -> Result<(), Error> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(i) => Err(Error::corrupt(format!("{name} is not finite at entry {i}"))),
        None => Ok(()),
    }
}
