//! What the benchmarks measure: rows, filters and memory, defined once.
//!
//! Rows come from a [`Ring`] that is larger than the caches, so that each call meets a row as a server does: not in cache.
//! A ring of one row is the other end.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod candle_like;
pub mod cuda;
mod pipeline;
mod rows;

use clap::ValueEnum;
use qrita_core::{Candidates, Dtype, Logits, LogitsMut, Outputs, Params};
use qrita_testkit::batch::Stored;
use qrita_testkit::fixtures;
use qrita_testkit::rows::{RowKind, row};

pub use pipeline::Pipeline;
pub use rows::Rows;

/// Vocabularies: Llama 2, Llama 3, Qwen 2.5, Gemma 3.
pub const VOCABS: [usize; 4] = [32_000, 128_256, 151_936, 262_144];

/// Bytes of logits that no cache holds, and that a ring takes.
pub const COLD: usize = 96 << 20;

/// What the rows look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// As the head of a language model has it.
    #[value(name = "llm")]
    LanguageModel,
    /// N(0, 1).
    Normal,
    /// N(0, 0.01): top-p keeps most of it.
    Flat,
    /// One value.
    Equal,
    /// Normal, in bf16 steps: groups of ties.
    Plateaus,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::LanguageModel, Kind::Normal, Kind::Flat, Kind::Equal, Kind::Plateaus];

    /// Its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Kind::LanguageModel => "llm",
            Kind::Normal => "normal",
            Kind::Flat => "flat",
            Kind::Equal => "equal",
            Kind::Plateaus => "plateaus",
        }
    }

    fn row(self, vocab: usize, seed: u64) -> Vec<f32> {
        let kind = match self {
            Kind::LanguageModel => RowKind::LanguageModel,
            Kind::Normal => RowKind::Standard,
            Kind::Flat => RowKind::Flat,
            Kind::Equal => return vec![1.5; vocab],
            Kind::Plateaus => RowKind::Plateaus,
        };
        row(kind, vocab, seed)
    }
}

/// Which filters run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Filter {
    /// k = 50.
    #[value(name = "k")]
    TopK,
    /// k = 50 and p = 0.9.
    Both,
    /// p = 0.9.
    #[value(name = "p")]
    TopP,
}

impl Filter {
    /// All of them.
    pub const ALL: [Filter; 3] = [Filter::TopK, Filter::Both, Filter::TopP];

    /// Its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Filter::TopK => "k=50",
            Filter::Both => "k=50,p=0.9",
            Filter::TopP => "p=0.9",
        }
    }

    /// Its parameters.
    pub fn params(self) -> Params<'static> {
        match self {
            Filter::TopK => Params::default().top_k(50),
            Filter::Both => Params::default().top_k(50).top_p(0.9),
            Filter::TopP => Params::default().top_p(0.9),
        }
    }
}

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
        match &self.stored {
            Stored::F32(data) => Logits::new(data, self.vocab),
            Stored::F16(data) => Logits::new(data, self.vocab),
            Stored::Bf16(data) => Logits::new(data, self.vocab),
        }
        .expect("a ring holds whole rows")
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
