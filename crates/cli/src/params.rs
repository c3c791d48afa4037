//! Parameter files: one JSON object a row.

use qrita::{Error, Logits, Params};
use serde::Deserialize;

/// The parameters of one row; what a line leaves out is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct RowParams {
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub temperature: Option<f32>,
    pub seed: Option<u64>,
    pub position: Option<u64>,
}

/// What is wrong with a parameter file, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParamsError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}

/// Reads a parameter file: line n is row n − 1.
///
/// ```
/// let rows = qrita_cli::read_params(b"{\"top_k\": 50}\n{}\n")?;
/// assert_eq!((rows[0].top_k, rows[1].top_k), (Some(50), None));
/// let error = qrita_cli::read_params(b"{}\n{\"topk\": 50}\n").unwrap_err();
/// assert_eq!(error.line, 2);
/// # Ok::<(), qrita_cli::ParamsError>(())
/// ```
///
/// # Errors
/// The first line that is not an object of known parameters, each within its range.
pub fn read_params(text: &[u8]) -> Result<Vec<RowParams>, ParamsError> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let line =
        |(index, line): (usize, &[u8])| read_line(line).map_err(|message| ParamsError { line: index + 1, message });
    text.split(|&byte| byte == b'\n').enumerate().map(line).collect()
}

fn read_line(line: &[u8]) -> Result<RowParams, String> {
    if line.trim_ascii().is_empty() {
        return Err("it is empty: write {} for a row without parameters of its own".to_owned());
    }
    // An array would be taken as the fields in order.
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("it is not a JSON object: write for example {\"top_k\": 50}".to_owned());
    }
    let row: RowParams = serde_json::from_slice(line).map_err(|error| {
        let message = error.to_string();
        // The line within the line is always 1.
        match message.rsplit_once(" at line 1 column ") {
            Some((what, column)) => format!("{what} at column {column}"),
            None => message,
        }
    })?;
    row.check()?;
    Ok(row)
}

impl RowParams {
    /// The contract's own check, on a row of one logit.
    fn check(&self) -> Result<(), String> {
        let mut params = Params::default();
        if let Some(value) = self.top_p {
            params = params.top_p(value);
        }
        if let Some(value) = self.min_p {
            params = params.min_p(value);
        }
        if let Some(value) = self.temperature {
            params = params.temperature(value);
        }
        match Logits::new(&[0.0f32], 1).and_then(|logits| params.validate(&logits)) {
            Err(Error::Param { param, value, expected, .. }) => {
                Err(format!("{param} is {value}: it must be {expected}"))
            }
            Err(error) => Err(error.to_string()),
            Ok(()) => Ok(()),
        }
    }
}
