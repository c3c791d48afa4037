//! What rows look like, and which filters run on them.

use clap::ValueEnum;
use qrita_core::Params;
use qrita_testkit::rows::{RowKind, row};

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

    /// The row of this kind and seed.
    pub fn row(self, vocab: usize, seed: u64) -> Vec<f32> {
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
