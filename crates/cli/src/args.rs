//! The arguments.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use qrita::{BackendKind, Dtype, MAX_TOP, Order, Plan, Search, Ties, Truncation};
use qrita_study::Kind;

const EXIT_CODES: &str = "\
Exit codes:
  0  done (also when the reader of a pipe closes it early)
  1  a file can not be opened or written, or the device failed
  2  bad usage: an argument, a parameter or the content of a file must be changed";

/// The most tokens of a row: its answers are held in memory.
const MAX_DRAWS: i64 = 1 << 20;

const INPUT: &str = "\
The file of logits: safetensors (f32, f16, bf16) or npy (f32, f16), told apart by content. A tensor is [vocab], \
[rows, vocab] or [rows, positions, vocab], of which the last position is taken. The file is mapped into memory: do not \
shorten it while it is read.";

/// Exact top-k, top-p and min-p filtering and sampling of a language model's logits
///
/// The same bits on every machine: the kept set is the one of a stable sort, and a token depends on nothing but its
/// row's logits, parameters, seed and position.
#[derive(Debug, Parser)]
#[command(name = "qrita", version, after_help = EXIT_CODES, arg_required_else_help = false)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print or save the tokens that the filters keep, or the masked logits
    #[command(after_help = "\
Examples:
  qrita filter logits.safetensors --top-k 50 --top-p 0.9
  qrita filter logits.safetensors --tensor logits --top-p 0.9 --format jsonl
  qrita filter logits.npy --top-k 50 --output kept.safetensors
  qrita filter logits.npy --top-k 50 --mask --output masked.npy

Run with --help for the formats and exit codes.",
        after_long_help = FILTER_HELP)]
    Filter(FilterArgs),
    /// Draw a token of every row, or several
    #[command(after_help = "\
Examples:
  qrita sample logits.safetensors --top-k 50 --top-p 0.9 --seed 7
  qrita sample logits.npy --temperature 0 --format jsonl
  qrita sample logits.npy --params requests.jsonl --format jsonl
  qrita sample logits.npy --draws 4 --top 20 --format jsonl

Run with --help for the formats and exit codes.",
        after_long_help = SAMPLE_HELP)]
    Sample(SampleArgs),
    /// Describe the logits of a file, and how well each truncation of the paper works on them
    #[command(after_help = "\
Examples:
  qrita stats logits.safetensors
  qrita stats logits.npy --top-k 20 --top-p 0.95 --format jsonl",
        after_long_help = STATS_HELP)]
    Stats(StatsArgs),
    /// Time the paper's ablation, runs A to J, on every backend that is there
    #[command(after_help = "\
Examples:
  qrita ablate
  qrita ablate --backend cpu --input logits.safetensors --top-k 20 --json ablation.json

Run with --help for what is measured, and for exit codes.",
        after_long_help = ABLATE_HELP)]
    Ablate(AblateArgs),
    /// Generate, fit and show the delta tables behind the truncation
    Tables(TablesArgs),
    /// Measure which launch shapes are fastest on the CUDA device; never changes an answer
    #[cfg(feature = "cuda")]
    #[command(after_help = "\
Examples:
  qrita tune --output tuning.json
  qrita filter logits.safetensors --top-k 50 --backend cuda --tuning tuning.json

Run with --help for what is measured, and for exit codes.",
        after_long_help = TUNE_HELP)]
    Tune(TuneArgs),
    /// Print the version, and which backends this build and this machine have
    #[command(after_help = "Example:\n  qrita info")]
    Info(InfoArgs),
}

const FILTER_HELP: &str = "\
Formats:
  table        for people: how many tokens each row keeps, and the first of them
  jsonl        one object a row, its tokens by descending logit, ties by ascending id:
               {\"row\":0,\"status\":[],\"kept\":2,\"ids\":[..],\"logits\":[..],\"logprobs\":[..]}
               Numbers read back as the same f32; infinities are the strings \"inf\" and
               \"-inf\". With several tensors each object starts with \"tensor\".
  safetensors  tensors kept and status [rows] and ids, logits and logprobs [rows, most
               kept]; a row that keeps fewer ends in id -1 and -inf. With several tensors
               each name is preceded by the tensor's and a dot.
  npy          one record a kept token: row, id, logit, logprob
A status is any of nan, pos_inf, empty; as a number it is the sum of 1, 2, 4.

With --mask the output holds the logits themselves, in their dtype, with -inf for every
token that is not kept. npy has no bf16.

Examples:
  qrita filter logits.safetensors --top-k 50 --top-p 0.9
  qrita filter logits.safetensors --tensor logits --top-p 0.9 --format jsonl
  qrita filter logits.npy --top-k 50 --output kept.safetensors
  qrita filter logits.npy --top-k 50 --mask --output masked.npy

Exit codes:
  0 done, 1 a file can not be opened or written or the device failed, 2 an argument or
  the content of a file must be changed";

const SAMPLE_HELP: &str = "\
Rows that share seed and position share their random bits, as a request does wherever
its row lies in a batch: give independent rows seeds of their own with --params.

Formats:
  table        for people
  jsonl        one object a row:
               {\"row\":0,\"status\":[],\"token\":7,\"logprob\":-0.1,\"raw_logprob\":-0.2,
               \"rank\":0,\"kept\":3}
               logprob is the token's among those kept, raw_logprob in the whole row; rank
               is how many tokens are likelier. All but kept are null for a row without a
               candidate. With several tensors each object starts with \"tensor\".
  safetensors  tensors status, token, logprob, raw_logprob, rank and kept [rows]; -1 and
               -inf where there is no token. With several tensors each name is preceded by
               the tensor's and a dot.
  npy          one record a row: row, status, token, logprob, raw_logprob, rank, kept
A status is any of nan, pos_inf, empty; as a number it is the sum of 1, 2, 4.

With --draws N, also for N = 1, what there is one of a token is a list of N: in jsonl
\"token\":[7,2], \"logprob\":[..] and so on, in safetensors [rows, N], in npy a field of N
numbers. The table has a line a draw.

With --top N the first N candidates of the whole row come last, whatever is kept: their ids
by descending logit, ties by ascending id, and their log-probabilities in the whole row. In
jsonl \"top_ids\":[..],\"top_logprobs\":[..], fewer where the row has fewer candidates; in
safetensors top_ids and top_logprobs [rows, N] and in npy fields of N numbers, which end in
-1 and -inf there. The table has them in place of the likeliest kept tokens.

Examples:
  qrita sample logits.safetensors --top-k 50 --top-p 0.9 --seed 7
  qrita sample logits.npy --temperature 0 --format jsonl
  qrita sample logits.npy --params requests.jsonl --format jsonl
  qrita sample logits.npy --draws 4 --top 20 --format jsonl

Exit codes:
  0 done, 1 a file can not be opened or written or the device failed, 2 an argument or
  the content of a file must be changed";

const STATS_HELP: &str = "\
For every tensor: the range of its rows' means, deviations and maxima; how many tokens
top-k, top-p and both keep; and for each truncation the share of rows that it hits and
N_t, the candidates that it gathers on average (the paper's Table 1).

A truncation is stage 1 alone. The whole call is what the backend does by default: on CUDA
the kernel that reads the rows, in batches of up to 64. Of top-p alone it says too in how
many of the rows whose candidates suffice a bound of the row's mass did (certified); the
others take another pass.

Examples:
  qrita stats logits.safetensors
  qrita stats logits.npy --top-k 20 --top-p 0.95 --format jsonl

Exit codes:
  0 done, 1 a file can not be opened or written or the device failed, 2 an argument or
  the content of a file must be changed";

const ABLATE_HELP: &str = "\
A batch is masked in place under each plan: A is the paper's algorithm, B to G have one
thing off, H all of them, I sorts what truncation left, J sorts whole rows, and the last is
the library's own. Before a run is timed, what it keeps of every different row is compared
with an oracle that shares no code with the backends: a stable sort and exact integers.

On the CPU a time is the median of calls on a batch that is restored before each; on CUDA
that of replays of a graph over copies of the batch that no cache holds. A run that this
build has no code for is left out.

Examples:
  qrita ablate
  qrita ablate --backend cpu --rows 64 --vocab 32000 --kind flat --csv flat.csv
  qrita ablate --input logits.safetensors --tensor logits --top-p 1 --json ablation.json

Exit codes:
  0 done, 1 a run kept what it must not, a file can not be opened or written, or the device
  failed, 2 an argument or the content of a file must be changed";

#[cfg(feature = "cuda")]
const TUNE_HELP: &str = "\
For every dtype, vocabulary and number of rows, masked in place and read for candidates,
under k = 50 with p = 0.9 and under p = 0.9 alone: the fastest shape, from the built-in one
on by twice and half as many threads and blocks. Before a shape is timed, what it keeps is
compared with the CPU backend's. The built-in shape stays where none is 2 % faster.

A launch is tuned by the class of its numbers: from more than half a power of two up to it.
128256 stands for 65537 to 131072, 8 rows for 5 to 8. What was not measured keeps its
built-in shape. A tuning is used on the device that it was made on, and refused elsewhere.

Examples:
  qrita tune --output tuning.json
  qrita tune --quick
  qrita tune --dtype bf16 --vocab 151936 --rows 1,2,4,8 --output qwen.json
  qrita filter logits.safetensors --top-k 50 --backend cuda --tuning tuning.json

Exit codes:
  0 done, 1 there is no device, it failed, or a shape kept what it must not, or a file can
  not be written, 2 an argument must be changed";

#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Write the logits with -inf for every token that is not kept, instead of the kept tokens
    #[arg(long, requires = "output")]
    pub(crate) mask: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SampleArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
    /// The key of the random bits
    #[arg(long, value_name = "S", default_value_t = 0, help_heading = "Parameters", allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// The place of the token in its sequence: the counter of the random bits
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Parameters", allow_negative_numbers = true)]
    pub(crate) position: u64,
    #[command(flatten)]
    pub(crate) drawn: DrawArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What of each row.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct DrawArgs {
    /// Draw N tokens of each row, with replacement, and write them as lists. Without it: one, not a list
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=MAX_DRAWS),
    )]
    pub(crate) draws: Option<u32>,
    /// Write the first N candidates of the whole row too, before any filter; 0 is off
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(0..=MAX_TOP as i64),
    )]
    pub(crate) top: u32,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// The k to study; 0 leaves it out
    #[arg(long, value_name = "K", default_value_t = 50, allow_negative_numbers = true)]
    pub(crate) top_k: u32,
    /// The p to study; 1 leaves it out
    #[arg(long, value_name = "P", default_value_t = 0.9, allow_negative_numbers = true)]
    pub(crate) top_p: f32,
    /// Divides the logits' distances from the row's maximum
    #[arg(long, value_name = "T", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) temperature: f32,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// How to print it
    #[arg(long, value_enum, default_value_t = StatsFormat::Table)]
    pub(crate) format: StatsFormat,
}

#[derive(Debug, Args)]
pub(crate) struct AblateArgs {
    /// Where: auto is every backend that is there
    #[arg(long, value_name = "B", default_value_t = BackendKind::Auto)]
    pub(crate) backend: BackendKind,
    /// The device of the CUDA backend, counted from 0
    #[cfg(feature = "cuda")]
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) device: usize,
    /// Threads of the CPU backend; 0 is all cores
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) threads: usize,
    /// Rows of the batch. Without it: the paper's 1024 on CUDA, 256 on the CPU
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub(crate) rows: Option<u32>,
    /// Logits of a row, where no file is given
    #[arg(long, value_name = "V", default_value_t = 128_256, conflicts_with = "input",
          value_parser = clap::value_parser!(u32).range(1..=1 << 21))]
    pub(crate) vocab: u32,
    /// What the rows look like, where no file is given
    #[arg(long, value_enum, default_value_t = Kind::LanguageModel, conflicts_with = "input")]
    pub(crate) kind: Kind,
    /// Take the rows from a file: safetensors or npy
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// The tensor of the file
    #[arg(long, value_name = "NAME", requires = "input")]
    pub(crate) tensor: Option<String>,
    /// How many tokens to keep at most; 0 is off
    #[arg(long, value_name = "K", default_value_t = 50, allow_negative_numbers = true)]
    pub(crate) top_k: u32,
    /// The share of the mass to keep; 1 is off
    #[arg(long, value_name = "P", default_value_t = 0.9, allow_negative_numbers = true)]
    pub(crate) top_p: f32,
    /// The type that logits are rounded to. Without it: the file's, or f32
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(crate) dtype: Option<DtypeArg>,
    /// Times that a median is of. Without it: 21 on CUDA, 5 on the CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeats: Option<u32>,
    /// Write the figures here too, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the figures here too, as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct TablesArgs {
    #[command(subcommand)]
    pub(crate) command: TablesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TablesCommand {
    /// Write the tables of the normal law, which are also built in
    #[command(after_help = "Example:\n  qrita tables generate --output normal.json")]
    Generate {
        /// The file to write; standard output without it
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Fit tables to a model's own logits
    #[command(after_help = "\
Example:
  qrita tables fit logits.safetensors --output model.json
  qrita filter other.safetensors --top-k 50 --tables model.json")]
    Fit {
        #[command(flatten)]
        input: InputArgs,
        /// The file to write
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
        /// The share of the rows that must be hit
        #[arg(long, value_name = "SHARE", default_value_t = 0.999, allow_negative_numbers = true)]
        coverage: f64,
    },
    /// Print where a table comes from, and some of its values
    #[command(after_help = "Example:\n  qrita tables show model.json")]
    Show {
        /// A file that generate or fit wrote; the built-in tables without it
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

#[cfg(feature = "cuda")]
#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// The device, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) device: usize,
    /// Types of the logits, divided by commas. Without it: f32 and bf16
    #[arg(long, value_enum, value_name = "TYPE", value_delimiter = ',')]
    pub(crate) dtype: Vec<DtypeArg>,
    /// Logits of a row, divided by commas. Without it: 32000, 128256 and 262144
    #[arg(long, value_name = "V", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 21))]
    pub(crate) vocab: Vec<u32>,
    /// Rows of a batch, divided by commas. Without it: every power of two from 1 to 1024
    #[arg(long, value_name = "B", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub(crate) rows: Vec<u32>,
    /// Measure less, where the flags do not say what: rows of 128256, and 1, 8, 32, 128 and 1024 of them
    #[arg(long)]
    pub(crate) quick: bool,
    /// The file to write, for --tuning and for the library; without it the table alone is printed
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct InputArgs {
    /// The file of logits: safetensors or npy
    #[arg(value_name = "FILE", long_help = INPUT)]
    pub(crate) file: PathBuf,
    /// A tensor of the file; may be given more than once. Without it: every tensor that can be used, in name order
    #[arg(long, value_name = "NAME")]
    pub(crate) tensor: Vec<String>,
    /// The first N rows, or the rows A to B - 1
    #[arg(long, value_name = "N|A..B", allow_negative_numbers = true)]
    pub(crate) rows: Option<RowRange>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Parameters")]
pub(crate) struct ParameterArgs {
    /// How many tokens to keep at most; 0 is off
    #[arg(long, value_name = "K", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) top_k: u32,
    /// The share of the mass to keep; 1 is off
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) top_p: f32,
    /// The least probability to keep, relative to the likeliest token's; 0 is off
    #[arg(long, value_name = "M", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) min_p: f32,
    /// Divides the logits' distances from the row's maximum; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) temperature: f32,
    /// Parameters of single rows: one JSON object a line, line 1 for row 0 of the tensor
    ///
    /// Keys: top_k, top_p, min_p, temperature, seed, position. A key that is missing has the flag's value; {} is a row
    /// without parameters of its own.
    #[arg(long, value_name = "FILE")]
    pub(crate) params: Option<PathBuf>,
    /// Which of several equal logits a cut keeps
    #[arg(long, value_enum, default_value_t = Ties::default().into())]
    pub(crate) ties: TiesArg,
    /// Over which mass top-p is taken: what top-k left, or all of it
    #[arg(long, value_enum, default_value_t = Order::default().into())]
    pub(crate) order: OrderArg,
    /// Ids from N on are padding, and never kept
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) valid_vocab: Option<usize>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Execution")]
pub(crate) struct EngineArgs {
    #[cfg_attr(
        feature = "cuda",
        doc = "What computes: auto, cpu or cuda; auto is cuda where it can be used, else cpu"
    )]
    #[cfg_attr(not(feature = "cuda"), doc = "What computes: auto or cpu")]
    #[arg(long, value_name = "B", default_value_t = BackendKind::Auto)]
    pub(crate) backend: BackendKind,
    /// The device of the CUDA backend, counted from 0
    #[cfg(feature = "cuda")]
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) device: usize,
    /// Launch on the CUDA device as this file says (see `qrita tune`); never changes the answer
    #[cfg(feature = "cuda")]
    #[arg(long, value_name = "FILE")]
    pub(crate) tuning: Option<PathBuf>,
    /// Threads of the CPU backend; 0 is all cores
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) threads: usize,
    /// Truncate by these delta tables (see `qrita tables`); never changes the answer
    #[arg(long, value_name = "FILE")]
    pub(crate) tables: Option<PathBuf>,
}

/// The paper's ablation switches.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ablation (only --no-duplicates changes the answer)")]
pub(crate) struct PlanArgs {
    /// How a row is truncated to candidates
    #[arg(long, value_enum, default_value_t = Truncation::default().into())]
    pub(crate) truncation: TruncationArg,
    /// How the cut is found among the candidates
    #[arg(long, value_enum, default_value_t = Search::default().into())]
    pub(crate) search: SearchArg,
    /// Keep all values that equal the cut
    #[arg(long)]
    pub(crate) no_duplicates: bool,
    /// Use one fixed launch shape
    #[arg(long)]
    pub(crate) no_autotune: bool,
    /// Treat every truncation as a miss
    #[arg(long)]
    pub(crate) force_fallback: bool,
}

impl From<PlanArgs> for Plan {
    fn from(args: PlanArgs) -> Plan {
        Plan {
            truncation: args.truncation.into(),
            search: args.search.into(),
            // Off where this build has no other choice.
            duplicates: Plan::default().duplicates && !args.no_duplicates,
            autotune: Plan::default().autotune && !args.no_autotune,
            force_fallback: args.force_fallback,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// How to write it. Without it: what the output's name ends in, else a table
    #[arg(long, value_enum)]
    pub(crate) format: Option<OutputFormat>,
    /// The file to write; standard output without it
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Jsonl,
    Safetensors,
    Npy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsFormat {
    Table,
    Jsonl,
}

/// An enum of the library's as a command-line value.
macro_rules! value_enum {
    ($name:ident for $target:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        #[derive(Clone, Copy, Debug, ValueEnum)]
        pub(crate) enum $name {
            $(#[value(name = $text)] $variant),*
        }

        impl From<$name> for $target {
            fn from(value: $name) -> $target {
                match value {
                    $($name::$variant => $target::$variant),*
                }
            }
        }

        impl From<$target> for $name {
            fn from(value: $target) -> $name {
                match value {
                    $($target::$variant => $name::$variant),*
                }
            }
        }
    };
}

value_enum!(TiesArg for Ties { LowestId = "lowest-id", KeepAll = "keep-all" });
value_enum!(OrderArg for Order { TopKThenTopP = "top-k-then-top-p", Joint = "joint" });
value_enum!(TruncationArg for Truncation {
    Off = "off",
    Paper = "paper",
    Gaussian = "gaussian",
    Quantile = "quantile",
    Adaptive = "adaptive",
});
value_enum!(SearchArg for Search { Quaternary = "quaternary", Binary = "binary", Sort = "sort", Select = "select" });

value_enum!(DtypeArg for Dtype { F32 = "f32", F16 = "f16", Bf16 = "bf16" });

/// A choice of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowRange {
    /// As many as there are, up to this number.
    First(usize),
    /// Exactly these.
    Between(usize, usize),
}

impl FromStr for RowRange {
    type Err = String;

    fn from_str(text: &str) -> Result<RowRange, String> {
        let number = |text: &str| text.parse().map_err(|_| "write a number of rows, or A..B".to_owned());
        match text.split_once("..") {
            None => number(text).map(RowRange::First),
            Some((start, end)) => match (number(start)?, number(end)?) {
                (start, end) if start < end => Ok(RowRange::Between(start, end)),
                _ => Err("the range holds no row".to_owned()),
            },
        }
    }
}

impl fmt::Display for RowRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowRange::First(rows) => write!(f, "{rows}"),
            RowRange::Between(start, end) => write!(f, "{start}..{end}"),
        }
    }
}
