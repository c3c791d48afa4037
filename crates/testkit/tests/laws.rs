//! The statistics of the draws, tried on samplers by definition: the right one passes, each wrong one fails.

use qrita_core::philox::{random, target};
use qrita_testkit::laws::{Apart, Law, Place, four_million_draws, independence, thirty_laws};

/// What a sampler is.
trait Sampler: FnMut(&Law, &[Place], u32) -> Vec<u32> {}
impl<F: FnMut(&Law, &[Place], u32) -> Vec<u32>> Sampler for F {}

fn bits_of(place: &Place, draw: u32) -> u64 {
    random(place.seed, place.position, place.stream, draw)
}

/// The right law, by these random bits.
fn by_bits(mut bits: impl FnMut(&Place, u32, u32) -> u64) -> impl Sampler {
    move |law, places, draws| {
        let mut draw = |place, number| law.token_at(target(bits(place, number, draws), law.mass()));
        places.iter().flat_map(|place| (0..draws).map(move |number| (place, number))).map(|(p, n)| draw(p, n)).collect()
    }
}

/// Another law of the same tokens, by the right bits: `ends` are its weights summed up to each.
fn by_law(ends: impl Fn(&Law) -> Vec<f64>) -> impl Sampler {
    move |law, places, draws| {
        let (ends, ids) = (ends(law), law.tokens().map(|(id, _)| id).collect::<Vec<_>>());
        let mass = ends[ends.len() - 1];
        let token = |bits: u64| {
            let target = bits as f64 / 2f64.powi(64) * mass;
            ids[ends.partition_point(|&end| end <= target).min(ids.len() - 1)]
        };
        places.iter().flat_map(|place| (0..draws).map(move |draw| token(bits_of(place, draw)))).collect()
    }
}

/// As a temperature that is higher by this share has it.
fn hotter(share: f64) -> impl Sampler {
    by_law(move |law| {
        let mut end = 0.0;
        let power = 1.0 / (1.0 + share);
        let ends = law.tokens().map(|(_, weight)| {
            end += (weight as f64).powf(power);
            end
        });
        ends.collect()
    })
}

/// As sums of f32 have it.
fn sums_of_f32() -> impl Sampler {
    by_law(|law| {
        let mut end = 0f32;
        let ends = law.tokens().map(|(_, weight)| {
            end += weight as f32 / law.mass() as f32;
            f64::from(end)
        });
        ends.collect()
    })
}

/// Without the last token of the row.
fn without_the_last() -> impl Sampler {
    by_law(|law| {
        let mut end = 0.0;
        let last = law.len() - 1;
        let ends = law.tokens().enumerate().map(|(i, (_, weight))| {
            end += if i == last { 0.0 } else { weight as f64 };
            end
        });
        ends.collect()
    })
}

fn right() -> impl Sampler {
    by_bits(|place, number, _| bits_of(place, number))
}

#[test]
fn the_right_sampler_passes() {
    thirty_laws(right()).unwrap();
    four_million_draws(right()).unwrap();
    independence(&Apart::ALL, right()).unwrap();
}

#[test]
fn wrong_laws_are_seen() {
    thirty_laws(hotter(0.01)).unwrap_err();
    // Too little for any law alone to show: it is the uniformity of all that fails.
    thirty_laws(hotter(0.005)).unwrap_err();
    // The one law with a tail fails.
    thirty_laws(sums_of_f32()).unwrap_err();
    // Twelve random bits.
    thirty_laws(by_bits(|place, number, _| bits_of(place, number) & 0xFFF << 52)).unwrap_err();
    // Every token as often as it should be, to within one draw.
    let even = |_: &Place, number: u32, draws: u32| ((u128::from(number) << 64) / u128::from(draws)) as u64;
    thirty_laws(by_bits(even)).unwrap_err();
}

#[test]
fn variation_is_seen() {
    four_million_draws(hotter(0.03)).unwrap_err();
    four_million_draws(without_the_last()).unwrap_err();
}

#[test]
#[should_panic = "was drawn and is not kept"]
fn a_stray_token_is_seen() {
    let mut right = right();
    let stray = |law: &Law, places: &[Place], draws: u32| {
        let mut tokens = right(law, places, draws);
        tokens[7] = (0..).find(|id| law.tokens().all(|(kept, _)| kept != *id)).unwrap();
        tokens
    };
    let _ = four_million_draws(stray);
}

#[test]
fn dependence_is_seen() {
    for apart in Apart::ALL {
        // One token in twenty is the one before it.
        let echo = |law: &Law, places: &[Place], draws: u32| {
            let mut tokens = right()(law, places, draws);
            (19..tokens.len()).step_by(20).for_each(|i| tokens[i] = tokens[i - 1]);
            tokens
        };
        independence(&[apart], echo).expect_err("an echo");
        // A counter that is multiplied and not mixed. Unrelated requests do not count.
        if apart != Apart::Rows {
            let counter = |place: &Place, number: u32| place.seed + place.position + u64::from(place.stream + number);
            let weyl = |place: &Place, number: u32, _: u32| counter(place, number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            independence(&[apart], by_bits(weyl)).expect_err("a counter");
        }
    }
}
