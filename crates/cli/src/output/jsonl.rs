//! JSON lines: the form that scripts rely on.
//!
//! A number is the shortest text that reads back as the same f32. JSON has no infinities: they are the strings `inf`
//! and `-inf`.

use std::io::{self, Write};

use qrita::{Filtered, NO_TOKEN, Status};
use serde::ser::SerializeSeq as _;
use serde::{Serialize, Serializer};

use crate::drawn::DrawnRow;

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

/// What is drawn of a row. The order of the fields is part of the form.
#[derive(Serialize)]
pub(crate) struct SampledRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor: Option<&'a str>,
    row: usize,
    #[serde(serialize_with = "names")]
    status: Status,
    token: Draws<u32>,
    logprob: Draws<Number>,
    raw_logprob: Draws<Number>,
    rank: Draws<u32>,
    kept: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<Number>>,
}

/// What there is one of a draw. A row without a candidate has nulls.
#[derive(Serialize)]
#[serde(untagged)]
enum Draws<T> {
    Single(Option<T>),
    List(Vec<Option<T>>),
}

impl<'a> SampledRow<'a> {
    pub(crate) fn new(tensor: Option<&'a str>, row: usize, drawn: &DrawnRow<'a>) -> SampledRow<'a> {
        let (ids, logprobs) = drawn.top();
        SampledRow {
            tensor,
            row,
            status: drawn.status,
            token: Draws::new(drawn, drawn.token, |token| token),
            logprob: Draws::new(drawn, drawn.logprob, Number),
            raw_logprob: Draws::new(drawn, drawn.raw_logprob, Number),
            rank: Draws::new(drawn, drawn.rank, |rank| rank),
            kept: drawn.kept,
            top_ids: drawn.asked.top.map(|_| ids),
            top_logprobs: drawn.asked.top.map(|_| logprobs.iter().copied().map(Number).collect()),
        }
    }
}

impl<T> Draws<T> {
    fn new<V: Copy>(drawn: &DrawnRow<'_>, values: &[V], of: impl Fn(V) -> T) -> Draws<T> {
        let mut draws = drawn.token.iter().zip(values).map(|(&token, &value)| (token != NO_TOKEN).then(|| of(value)));
        match drawn.asked.draws {
            None => Draws::Single(draws.next().flatten()),
            Some(_) => Draws::List(draws.collect()),
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
