//! Where results go, and in which form.

pub(crate) mod jsonl;
pub(crate) mod npy;
pub(crate) mod safetensors;
pub(crate) mod sink;
pub(crate) mod table;

use std::path::Path;

use crate::args::{OutputArgs, OutputFormat};
use crate::failure::Failure;

/// Text to standard output or a file, or arrays to a file.
#[derive(Debug)]
pub(crate) enum Target<'a> {
    Table(Option<&'a Path>),
    Jsonl(Option<&'a Path>),
    Safetensors(&'a Path),
    Npy(&'a Path),
}

impl Target<'_> {
    /// The target that the arguments ask for.
    pub(crate) fn new(args: &OutputArgs) -> Result<Target<'_>, Failure> {
        let output = args.output.as_deref();
        let format = match (args.format, output) {
            (Some(format), _) => format,
            (None, None) => OutputFormat::Table,
            (None, Some(path)) => match path.extension().and_then(|extension| extension.to_str()) {
                Some("safetensors") => OutputFormat::Safetensors,
                Some("npy") => OutputFormat::Npy,
                Some("jsonl") => OutputFormat::Jsonl,
                Some("txt") => OutputFormat::Table,
                _ => {
                    let path = path.display();
                    return Err(Failure::Usage(format!(
                        "the name {path} does not tell the format: add --format, or let it end in .safetensors, .npy, \
                         .jsonl or .txt"
                    )));
                }
            },
        };
        let file = |format| {
            output.ok_or_else(|| Failure::Usage(format!("--format {format} is not for a terminal: add --output FILE")))
        };
        Ok(match format {
            OutputFormat::Table => Target::Table(output),
            OutputFormat::Jsonl => Target::Jsonl(output),
            OutputFormat::Safetensors => Target::Safetensors(file("safetensors")?),
            OutputFormat::Npy => Target::Npy(file("npy")?),
        })
    }
}
