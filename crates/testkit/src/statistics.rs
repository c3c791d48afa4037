//! Statistics of draws: how likely is it that a law came to what was counted?

/// The natural logarithm of the gamma function, for `x` from a half on: Lanczos' approximation, good to 14 digits.
fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let series = (1..).zip(COEFFICIENTS).map(|(i, c)| c / (x + f64::from(i))).sum::<f64>() + 0.999_999_999_999_809_9;
    let t = x + 7.5;
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + series.ln()
}

/// The probability that a chi-squared variable with these degrees of freedom is at least `statistic`.
///
/// ```
/// use qrita_testkit::statistics::chi_squared_tail;
/// // Quantiles as printed in any table.
/// for (statistic, degrees, tail) in [(3.841, 1, 0.05), (18.307, 10, 0.05), (135.807, 100, 0.01), (0.0, 7, 1.0)] {
///     assert!((chi_squared_tail(statistic, degrees) - tail).abs() < 1e-4);
/// }
/// assert_eq!(chi_squared_tail(f64::INFINITY, 3), 0.0);
/// ```
pub fn chi_squared_tail(statistic: f64, degrees: usize) -> f64 {
    let (a, x) = (degrees as f64 / 2.0, statistic / 2.0);
    if x <= 0.0 {
        return 1.0;
    }
    if !x.is_finite() {
        return 0.0;
    }
    let front = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        // The series of the lower part.
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * f64::EPSILON {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return (1.0 - front * sum).max(0.0);
    }
    // The continued fraction of the upper part, by Lentz' method.
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (f64::MAX, 1.0 / b);
    let mut value = d;
    for i in 1.. {
        let numerator = -f64::from(i) * (f64::from(i) - a);
        b += 2.0;
        d = 1.0 / (numerator * d + b);
        c = b + numerator / c;
        value *= d * c;
        if (d * c - 1.0).abs() < 4.0 * f64::EPSILON {
            break;
        }
    }
    front * value
}

/// The p-value of these counts under a law, by a G-test with Williams' correction. No expected count should be below a few
/// dozen: the statistic's own law is only then the chi-squared one.
///
/// ```
/// use qrita_testkit::statistics::g_test;
/// assert!(g_test(&[5010, 2480, 2510], &[0.5, 0.25, 0.25]) > 0.5);
/// assert!(g_test(&[5300, 2300, 2400], &[0.5, 0.25, 0.25]) < 1e-6);
/// ```
pub fn g_test(counts: &[u64], law: &[f64]) -> f64 {
    assert_eq!(counts.len(), law.len());
    let all = counts.iter().sum::<u64>() as f64;
    let part = |(&count, probability): (&u64, &f64)| match count {
        0 => 0.0,
        count => count as f64 * (count as f64 / (all * probability)).ln(),
    };
    let statistic = 2.0 * counts.iter().zip(law).map(part).sum::<f64>();
    let degrees = counts.len() - 1;
    let inverses = law.iter().map(|probability| 1.0 / probability).sum::<f64>();
    let correction = 1.0 + (inverses - 1.0) / (6.0 * all * degrees as f64);
    chi_squared_tail(statistic / correction, degrees)
}

/// The p-value of numbers that should be uniform on `0 ..= 1`, by the test of Kolmogorov and Smirnov: low where they are not,
/// and also where they are more evenly spread than chance has it.
///
/// ```
/// use qrita_testkit::statistics::uniform_p_value;
/// assert!(uniform_p_value(&[0.11, 0.34, 0.38, 0.52, 0.77, 0.91]) > 0.5);
/// assert!(uniform_p_value(&[0.7, 0.9, 0.81, 0.95, 0.88, 0.93]) < 0.02);
/// ```
pub fn uniform_p_value(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let gap = |(i, &value): (usize, &f64)| (value - i as f64 / n).max((i + 1) as f64 / n - value);
    let greatest = values.iter().enumerate().map(gap).fold(0.0, f64::max);
    // Stephens' form of the asymptotic law, good from a handful of values on.
    let x = (n.sqrt() + 0.12 + 0.11 / n.sqrt()) * greatest;
    let term = |j: i32| (if j % 2 == 1 { 2.0 } else { -2.0 }) * (-2.0 * f64::from(j * j) * x * x).exp();
    // Near 0 the terms do not fall, and the sum is 1 to more digits than a double has.
    if x < 0.2 { 1.0 } else { (1..=100).map(term).sum::<f64>().clamp(0.0, 1.0) }
}

/// The total variation between counts and a law: the greatest difference in the probability of any set.
pub fn total_variation(counts: &[u64], law: &[f64]) -> f64 {
    let all = counts.iter().sum::<u64>() as f64;
    0.5 * counts.iter().zip(law).map(|(&count, probability)| (count as f64 / all - probability).abs()).sum::<f64>()
}
