//! A batch of chains of draft tokens in memory of its own, and random ones.

use qrita_core::{Chains, NO_TOKEN, Plan, Side};

use crate::batch::{Batch, Stored};
use crate::oracle;
use crate::rows::{self, Random, RowKind, Size};

/// Draft tokens with the rows of both sides.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ChainBatch {
    pub offsets: Vec<usize>,
    pub tokens: Vec<u32>,
    pub draft: Batch,
    pub target: Batch,
}

impl ChainBatch {
    /// The chains as a backend takes them.
    pub fn chains(&self) -> Chains<'_> {
        Chains {
            offsets: &self.offsets,
            tokens: &self.tokens,
            draft: Side { logits: self.draft.logits(), params: self.draft.params() },
            target: Side { logits: self.target.logits(), params: self.target.params() },
        }
    }

    /// These requests, in this order.
    #[must_use]
    pub fn select(&self, requests: &[usize]) -> ChainBatch {
        let chains = self.chains();
        let drafts: Vec<usize> = requests.iter().flat_map(|&request| chains.draft_rows(request)).collect();
        let targets: Vec<usize> = requests.iter().flat_map(|&request| chains.target_rows(request)).collect();
        let lengths = requests.iter().map(|&request| chains.draft_rows(request).len());
        ChainBatch {
            offsets: offsets(lengths),
            tokens: drafts.iter().map(|&row| self.tokens[row]).collect(),
            draft: self.draft.select(&drafts),
            target: self.target.select(&targets),
        }
    }

    /// What a person needs to reproduce a request.
    pub fn describe(&self, request: usize) -> String {
        let chains = self.chains();
        let (drafts, targets) = (chains.draft_rows(request), chains.target_rows(request));
        let mut text = format!("request {request}, draft tokens {:?}", &self.tokens[drafts.clone()]);
        drafts.for_each(|row| text += &format!("\ndraft {}", self.draft.describe(row)));
        targets.for_each(|row| text += &format!("\ntarget {}", self.target.describe(row)));
        text
    }
}

fn offsets(lengths: impl Iterator<Item = usize>) -> Vec<usize> {
    let ends = lengths.scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

/// How a draft row comes from the target row that it is verified against.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Likeness {
    /// The same logits and parameters: everything is accepted.
    Equal,
    /// The same parameters, logits with noise of this deviation.
    Near(f64),
    /// Another row, of other parameters.
    Other,
}

/// Random chains of up to 8 draft tokens: rows of every kind, draft rows near to and far from the target's, tokens that were
/// drawn from them and tokens that cannot have been. `size.rows` are requests.
pub fn chains(seed: u64, size: Size) -> ChainBatch {
    let random = &mut Random::new(seed ^ 0xC4A1_4500_0000_0000);
    let requests = 1 + random.below(size.rows);
    let lengths: Vec<usize> = (0..requests).map(|_| random.pick(&[0, 1, 1, 2, 3, 5, 8])).collect();
    let vocab = 1 + random.below(size.vocab);
    let offsets = offsets(lengths.into_iter());
    let drafts = offsets[requests];
    let kinds: Vec<RowKind> = (0..drafts + requests).map(|_| random.pick(&RowKind::ALL)).collect();
    let target = rows::batch_of(&kinds, vocab, random);

    let near = random.pick(&[0.01, 0.1, 0.5, 2.0]);
    let likeness = random.pick(&[Likeness::Equal, Likeness::Near(near), Likeness::Near(near), Likeness::Other]);
    let against: Vec<usize> = (0..requests)
        .flat_map(|request| (offsets[request]..offsets[request + 1]).map(move |row| row + request))
        .collect();
    let draft = draft_rows(&target, &against, likeness, random);
    let drawn = oracle::answers(&draft.logits(), &draft.params(), &Plan::default());
    let token = |(row, answer): (usize, &oracle::Answer)| {
        let any = random.below(vocab + 1) as u32;
        let first = answer.ranked.candidates.first().map_or(any, |first| first.id);
        let drawn = answer.drawn.first().map_or(NO_TOKEN, |drawn| drawn.token);
        match random.below(12) {
            0 => random.pick(&[any, any, NO_TOKEN, vocab as u32, 1 << 31]),
            // Of the target's order, where the draft's is another.
            1 => (row as u32 + first) % vocab as u32,
            2 => first,
            _ => drawn,
        }
    };
    let tokens = drawn.iter().enumerate().map(token).collect();
    ChainBatch { offsets, tokens, draft, target }
}

/// Rows for the draft tokens that these target rows verify.
fn draft_rows(target: &Batch, against: &[usize], likeness: Likeness, random: &mut Random) -> Batch {
    let same = target.select(against);
    let mut draft = match likeness {
        Likeness::Equal => same,
        Likeness::Near(deviation) => {
            let noisy = |index| same.stored.as_row().get(index) + (deviation * random.normal()) as f32;
            let values: Vec<f32> = (0..same.stored.len()).map(noisy).collect();
            Batch { stored: Stored::narrow(&values, same.dtype()), ..same }
        }
        Likeness::Other => {
            let kinds: Vec<RowKind> = against.iter().map(|_| random.pick(&RowKind::ALL)).collect();
            // Vocabs differ where a model's is padded.
            let vocab = (target.vocab + random.pick(&[0, 0, 1, 7])).saturating_sub(random.pick(&[0, 0, 3])).max(1);
            let other = rows::batch_of(&kinds, vocab, random);
            let values: Vec<f32> = (0..other.stored.len()).map(|index| other.stored.as_row().get(index)).collect();
            Batch { stored: Stored::narrow(&values, target.dtype()), ..other }
        }
    };
    // As an engine has it, or not.
    let (seeds, streams) = (target.params.select(against), random.once_in(2));
    if streams {
        (draft.params.seed, draft.params.position, draft.params.stream) = (seeds.seed, seeds.position, seeds.stream);
    }
    draft.laid_out(random.below(3), draft.vocab + random.pick(&[0, 1, 5]), random.below(3), &[f32::NAN, 1e30])
}
