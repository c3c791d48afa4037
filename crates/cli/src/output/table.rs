//! Tables for people.

use std::io::{self, Write};

use qrita::{Filtered, NO_TOKEN};

use crate::drawn::{Asked, DrawnRow};
use crate::job::Batch;

/// How many kept tokens a row of the table shows.
pub(crate) const SHOWN: usize = 5;

/// What a tensor is, above its rows.
pub(crate) fn heading(out: &mut dyn Write, batch: &Batch<'_>) -> io::Result<()> {
    let tensor = batch.tensor;
    let (rows, dtype) = (batch.rows.len(), tensor.dtype().name());
    writeln!(out, "{}: {rows} rows of {} logits, {dtype}", tensor.name(), tensor.vocab())
}

/// The names of the columns of [`filtered`].
pub(crate) fn filtered_columns(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:>8}  {:>8}  {:<8}  likeliest tokens: id probability", "row", "kept", "status")
}

/// How many tokens a row keeps, and the first of them.
pub(crate) fn filtered(out: &mut dyn Write, row: usize, filtered: &Filtered) -> io::Result<()> {
    write!(out, "{row:>8}  {:>8}  {:<8}", filtered.ids.len(), filtered.status.to_string())?;
    let shown = filtered.ids.len().min(SHOWN);
    likeliest(out, &filtered.ids[..shown], &filtered.logprobs[..shown], filtered.ids.len())
}

/// The first of `kept` tokens, and the line's end.
fn likeliest(out: &mut dyn Write, ids: &[u32], logprobs: &[f32], kept: usize) -> io::Result<()> {
    for (id, logprob) in ids.iter().zip(logprobs) {
        write!(out, "  {id:>6} {:.4}", logprob.exp())?;
    }
    writeln!(out, "{}", if kept > ids.len() { "  …" } else { "" })
}

/// The names of the columns of [`sampled`].
pub(crate) fn sampled_columns(out: &mut dyn Write, asked: Asked) -> io::Result<()> {
    let (row, draw, kept, status, token, rank) = ("row", "draw", "kept", "status", "token", "rank");
    write!(out, "{row:>8}")?;
    if asked.draws.is_some() {
        write!(out, "  {draw:>7}")?;
    }
    write!(out, "  {kept:>8}  {status:<8}  {token:>8}  {rank:>6}  {:>9}  {:>11}", "logprob", "raw logprob")?;
    match asked.top {
        None => writeln!(out, "  likeliest tokens: id probability"),
        Some(_) => writeln!(out, "  first candidates: id raw logprob"),
    }
}

/// The tokens of a row, a line each. Beside the first of them the first candidates, or without those the first of the
/// kept tokens with their log-probabilities.
pub(crate) fn sampled(
    out: &mut dyn Write,
    row: usize,
    drawn: &DrawnRow<'_>,
    (ids, logprobs): (&[u32], &[f32]),
) -> io::Result<()> {
    let DrawnRow { asked, status, kept, token, logprob, raw_logprob, rank, .. } = *drawn;
    for draw in 0..token.len() {
        write!(out, "{row:>8}")?;
        if asked.draws.is_some() {
            write!(out, "  {draw:>7}")?;
        }
        write!(out, "  {kept:>8}  {:<8}", status.to_string())?;
        match token[draw] {
            NO_TOKEN => write!(out, "  {:>8}  {:>6}  {:>9}  {:>11}", "-", "-", "-", "-")?,
            token => {
                let (rank, logprob, raw_logprob) = (rank[draw], logprob[draw], raw_logprob[draw]);
                write!(out, "  {token:>8}  {rank:>6}  {logprob:>9.4}  {raw_logprob:>11.4}")?;
            }
        }
        match asked.top {
            _ if draw > 0 => writeln!(out)?,
            None => likeliest(out, ids, logprobs, kept as usize)?,
            Some(_) => first(out, drawn.top())?,
        }
    }
    Ok(())
}

/// The first candidates, and the line's end.
fn first(out: &mut dyn Write, (ids, logprobs): (&[u32], &[f32])) -> io::Result<()> {
    for (id, logprob) in ids.iter().zip(logprobs) {
        write!(out, "  {id:>6} {logprob:.4}")?;
    }
    writeln!(out)
}
