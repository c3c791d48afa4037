//! What the benchmarks measure in: rows in rings, and memory for answers. The rows and filters themselves are `qrita-study`'s, which
//! the command shares.
//!
//! Rows come from a [`Ring`] that is larger than the caches, so that each call meets a row as a server does: not in cache.
//! A ring of one row is the other end.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod candle_like;
pub mod cuda;
mod pipeline;

use qrita_core::{Candidates, Dtype, Logits, LogitsMut, Outputs};
use qrita_testkit::batch::Stored;
use qrita_testkit::fixtures;

pub use pipeline::Pipeline;
pub use qrita_study::{Filter, Kind, Rows};

/// Vocabularies: Llama 2, Llama 3, Qwen 2.5, Gemma 3.
pub const VOCABS: [usize; 4] = [32_000, 128_256, 151_936, 262_144];

/// Bytes of logits that no cache holds, and that a ring takes.
pub const COLD: usize = 96 << 20;

/// The middle one.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Rows to take one after the other, round and round.
#[derive(Clone)]
pub struct Ring {
    stored: Stored,
    vocab: usize,
    at: usize,
}

impl Ring {
    /// At least `bytes` of rows, at least one; a dozen different ones, repeated.
    pub fn new(kind: Kind, vocab: usize, dtype: Dtype, bytes: usize) -> Ring {
        let rows = bytes.div_ceil(vocab * dtype.size()).max(1);
        let different: Vec<Vec<f32>> = (0..rows.min(12)).map(|seed| kind.row(vocab, seed as u64)).collect();
        let all: Vec<&[f32]> = (0..rows).map(|i| &different[i % different.len()][..]).collect();
        Ring { stored: Stored::narrow(&all.concat(), dtype), vocab, at: 0 }
    }

    /// The rows of one of the real models in the repository's fixtures, repeated to at least `bytes`, in f32.
    pub fn real(model: &str, bytes: usize) -> Option<Ring> {
        let rows = fixtures::small().into_iter().find(|rows| rows.model == model)?;
        let wide: Vec<f32> = rows.logits.iter().map(|y| y.to_f32()).collect();
        let times = bytes.div_ceil(wide.len() * 4).max(1);
        Some(Ring { stored: Stored::narrow(&wide.repeat(times), Dtype::F32), vocab: rows.vocab, at: 0 })
    }

    /// How many rows it holds.
    pub fn rows(&self) -> usize {
        self.stored.len() / self.vocab
    }

    /// Logits in a row.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// The next row.
    pub fn next_row(&mut self) -> Logits<'_> {
        let row = self.at;
        self.at = (row + 1) % self.rows();
        self.all().slice(row..row + 1)
    }

    /// The next row, to mask in place.
    pub fn next_row_mut(&mut self) -> LogitsMut<'_> {
        let (row, vocab) = (self.at, self.vocab);
        self.at = (row + 1) % self.rows();
        let range = row * vocab..(row + 1) * vocab;
        match &mut self.stored {
            Stored::F32(data) => LogitsMut::new(&mut data[range], vocab),
            Stored::F16(data) => LogitsMut::new(&mut data[range], vocab),
            Stored::Bf16(data) => LogitsMut::new(&mut data[range], vocab),
        }
        .expect("a ring holds whole rows")
    }

    /// Undoes every mask.
    pub fn restore(&mut self, from: &Ring) {
        self.stored.clone_from(&from.stored);
    }

    /// All rows.
    pub fn all(&self) -> Logits<'_> {
        self.stored.logits(self.vocab).expect("a ring holds whole rows")
    }
}

/// Memory for the candidates of `rows` rows.
pub struct Room {
    capacity: usize,
    ids: Vec<u32>,
    logits: Vec<f32>,
    logprobs: Vec<f32>,
    kept: Vec<u32>,
}

impl Room {
    /// Room for `capacity` candidates a row.
    pub fn new(rows: usize, capacity: usize) -> Room {
        let room = rows * capacity;
        let (logits, logprobs) = (vec![0.0; room], vec![0.0; room]);
        Room { capacity, ids: vec![0; room], logits, logprobs, kept: vec![0; rows] }
    }

    /// The outputs: candidates and their number.
    pub fn outputs(&mut self) -> Outputs<'_> {
        let candidates = Candidates {
            capacity: self.capacity,
            ids: &mut self.ids,
            logits: &mut self.logits,
            logprobs: &mut self.logprobs,
        };
        Outputs { candidates: Some(candidates), kept: Some(&mut self.kept), ..Outputs::default() }
    }
}
