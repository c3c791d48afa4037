//! The normal law behind the tables: what δ would be if a row were drawn from a Gaussian.
//!
//! Source: arXiv 2602.01518, section "σ-truncation", which tabulates quantiles of the normal distribution. The functions
//! here are the law itself, in f64 and without a grid; [`DeltaTables::normal`](crate::DeltaTables::normal) is the table
//! made of them. The quantile is statrs' rational approximation, which the tests check against a bisection of the
//! complementary error function.

use statrs::distribution::{ContinuousCDF, Normal};

/// The highest δ that [`DeltaTables::top_p`](crate::DeltaTables::top_p) returns, in standard deviations.
///
/// The mass law integrates a continuous density, but a row has `V` points: in the scale's direction the law climbs without
/// bound, while the largest of `V` normal logits stays near `√(2 ln V)` (4.8 for V = 128256) and holds nearly all mass once
/// the scale passes that. A threshold past every logit gathers nothing. A share of 0.00135 of normal logits lies above 3
/// (173 of 128256), so stopping there costs next to nothing and keeps peaked rows a hit.
pub const TOP_P_CEILING: f32 = 3.0;

/// `Φ⁻¹(p)`: the value below which a standard normal variable falls with probability `p`.
///
/// −∞ for `p ≤ 0`, +∞ for `p ≥ 1`, NaN for NaN. Off by less than 10⁻⁹ for `10⁻⁷ ≤ p ≤ 1 − 10⁻⁷`.
///
/// ```
/// assert!((qrita_delta_tables::normal::quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-9);
/// ```
pub fn quantile(p: f64) -> f64 {
    if p.is_nan() {
        f64::NAN
    } else if p <= 0.0 {
        f64::NEG_INFINITY
    } else if p >= 1.0 {
        f64::INFINITY
    } else {
        Normal::standard().inverse_cdf(p)
    }
}

/// `δ_k = Φ⁻¹(1 − ratio)`: how many standard deviations above the mean a share `ratio = k/V` of normal logits begins.
///
/// +∞ for `ratio ≤ 0`, −∞ for `ratio ≥ 1`, NaN for NaN.
///
/// ```
/// assert!((qrita_delta_tables::normal::delta_k(50.0 / 128_256.0) - 3.359_906).abs() < 1e-5);
/// ```
pub fn delta_k(ratio: f64) -> f64 {
    // −Φ⁻¹(r) and not Φ⁻¹(1 − r): the ratios that matter are small, and 1 − r would round them away.
    -quantile(ratio)
}

/// `δ_p = σ + Φ⁻¹(1 − p)`: how many standard deviations above the mean the top softmax mass `p` of a normal row begins.
///
/// `sigma` is the row's standard deviation in units of the temperature (σ/T, nats). −∞ for `p ≥ 1`, +∞ for `p ≤ 0`.
///
/// Derivation: weighting the density of `N(μ, σ²)` by `e^y` gives that of `N(μ + σ², σ²)`, whose mass above `μ + δσ` is
/// `Φ(σ − δ)`; that equals `p` at this δ. It is not limited by [`TOP_P_CEILING`]; the table is.
///
/// ```
/// assert!((qrita_delta_tables::normal::delta_p(0.9, 3.0) - 1.718_448).abs() < 1e-5);
/// ```
pub fn delta_p(p: f64, sigma: f64) -> f64 {
    sigma - quantile(p)
}

/// `Φ(z)`, which places the grid of `p`.
pub(crate) fn cdf(z: f64) -> f64 {
    Normal::standard().cdf(z)
}
