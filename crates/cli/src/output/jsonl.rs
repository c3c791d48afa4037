//! JSON lines: the form that scripts rely on.
//!
//! A number is the shortest text that reads back as the same f32. JSON has no infinities: they are the strings `inf`
//! and `-inf`.

use std::io::{self, Write};

use qrita::{Filtered, Sampled, Status};
use serde::ser::SerializeSeq as _;
use serde::{Serialize, Serializer};

/// Writes one object and a line feed.
pub(crate) fn write(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// The kept tokens of a row. The order of the fields is part of the form.
#[derive(Serialize)]
pub(crate) struct FilteredRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor: Option<&'a str>,
    row: usize,
    #[serde(serialize_with = "names")]
    status: Status,
    kept: usize,
    ids: &'a [u32],
    #[serde(serialize_with = "numbers")]
    logits: &'a [f32],
    #[serde(serialize_with = "numbers")]
    logprobs: &'a [f32],
}

impl<'a> FilteredRow<'a> {
    pub(crate) fn new(tensor: Option<&'a str>, row: usize, filtered: &'a Filtered) -> FilteredRow<'a> {
        let Filtered { status, ids, logits, logprobs } = filtered;
        FilteredRow { tensor, row, status: *status, kept: ids.len(), ids, logits, logprobs }
    }
}

/// The token of a row. The order of the fields is part of the form.
#[derive(Serialize)]
pub(crate) struct SampledRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor: Option<&'a str>,
    row: usize,
    #[serde(serialize_with = "names")]
    status: Status,
    token: Option<u32>,
    logprob: Option<Number>,
    raw_logprob: Option<Number>,
    rank: Option<u32>,
    kept: u32,
}

impl<'a> SampledRow<'a> {
    pub(crate) fn new(tensor: Option<&'a str>, row: usize, sampled: &Sampled) -> SampledRow<'a> {
        let Sampled { status, kept, token, logprob, raw_logprob, rank } = *sampled;
        let with_token = |number| token.map(|_| Number(number));
        SampledRow {
            tensor,
            row,
            status,
            token,
            logprob: with_token(logprob),
            raw_logprob: with_token(raw_logprob),
            rank: token.map(|_| rank),
            kept,
        }
    }
}

fn names<S: Serializer>(status: &Status, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(status.names())
}

fn numbers<S: Serializer>(values: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(values.len()))?;
    for &value in values {
        list.serialize_element(&Number(value))?;
    }
    list.end()
}

struct Number(f32);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() { serializer.serialize_f32(self.0) } else { serializer.collect_str(&self.0) }
    }
}
