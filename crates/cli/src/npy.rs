//! npy files: a magic, a version, a Python dictionary with three keys, then the data of one array.
//!
//! The header is text of unknown origin. The parser here takes only what numpy writes for an array of plain numbers:
//! it does not recurse, allocates nothing but the shape, and says what it does not take.

use qrita::Dtype;

use crate::tensor::{Entry, Unfit};

/// What every npy file starts with.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// What the one array of an npy file is called.
const NAME: &str = "logits";

/// The array of an npy file.
pub(crate) fn read(bytes: &[u8]) -> Result<Entry<'_>, String> {
    let (text, data) = split(bytes)?;
    let text = std::str::from_utf8(text).map_err(|error| format!("its header is not UTF-8 ({error})"))?;
    let Header { descr, fortran, shape } = parse(text)?;

    let (order, kind) = descr.split_at_checked(1).unwrap_or_default();
    let logits = match (order, kind) {
        ("<", "f4") => Ok(Dtype::F32),
        ("<", "f2") => Ok(Dtype::F16),
        (">", "f4" | "f2") => Err(Unfit::BigEndian(descr.to_owned())),
        _ => Err(Unfit::Dtype(descr.to_owned())),
    };
    if let Ok(dtype) = logits {
        let needed = shape.iter().try_fold(dtype.size(), |size, &dim| size.checked_mul(dim));
        if needed != Some(data.len()) {
            let needed = needed.map_or("more bytes than memory has".to_owned(), |needed| format!("{needed} bytes"));
            return Err(format!("its shape {shape:?} takes {needed} of data, but it has {}", data.len()));
        }
    }
    // The order of the elements makes no difference where at most one dimension has more than one.
    let linear = shape.iter().filter(|&&dim| dim != 1).count() <= 1;
    let logits = if fortran && !linear { logits.and(Err(Unfit::FortranOrder)) } else { logits };
    Ok(Entry::new(NAME.to_owned(), descr.to_owned(), shape, logits, data))
}

/// The header's text and what follows it.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), String> {
    const SHORT: &str = "it is cut short in its header";
    let rest = bytes.get(MAGIC.len()..).ok_or(SHORT)?;
    let (&[major, minor], rest) = rest.split_first_chunk().ok_or(SHORT)?;
    let (length, rest) = match major {
        1 => rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_le_bytes(*length)), rest)),
        2 | 3 => rest.split_first_chunk().map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest)),
        _ => return Err(format!("its version is {major}.{minor}, only 1 to 3 are known")),
    }
    .ok_or(SHORT)?;
    Ok(rest.split_at_checked(length).ok_or(SHORT)?)
}

/// The three entries of a header.
#[derive(Debug, PartialEq)]
struct Header<'a> {
    descr: &'a str,
    fortran: bool,
    shape: Vec<usize>,
}

fn parse(text: &str) -> Result<Header<'_>, String> {
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    let mut text = Text(text);
    text.expect("{")?;
    while !text.take("}") {
        let key = text.quoted()?;
        text.expect(":")?;
        match key {
            "descr" if text.0.trim_start().starts_with('[') => {
                return Err("it is a structured array: save the logits alone".to_owned());
            }
            "descr" => descr = Some(text.quoted()?),
            "fortran_order" => fortran = Some(text.boolean()?),
            "shape" => shape = Some(text.tuple()?),
            _ => return Err(format!("its header has an unknown key `{key}`")),
        }
        if !text.take(",") {
            text.expect("}")?;
            break;
        }
    }
    if !text.0.trim().is_empty() {
        return Err("its header goes on behind the dictionary".to_owned());
    }
    let missing = |key| format!("its header has no `{key}`");
    Ok(Header {
        descr: descr.ok_or_else(|| missing("descr"))?,
        fortran: fortran.ok_or_else(|| missing("fortran_order"))?,
        shape: shape.ok_or_else(|| missing("shape"))?,
    })
}

/// The part of a header that is not parsed yet.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    fn take(&mut self, token: &str) -> bool {
        match self.0.trim_start().strip_prefix(token) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(self.unexpected(&format!("`{token}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> String {
        let found: String = self.0.trim_start().chars().take(20).collect();
        format!("its header has `{found}` where {wanted} belongs")
    }

    fn quoted(&mut self) -> Result<&'a str, String> {
        for quote in ["'", "\""] {
            if self.take(quote) {
                let (content, rest) = self.0.split_once(quote).ok_or("its header has a text without an end")?;
                self.0 = rest;
                return Ok(content);
            }
        }
        Err(self.unexpected("a quoted text"))
    }

    fn boolean(&mut self) -> Result<bool, String> {
        if self.take("True") {
            return Ok(true);
        }
        if self.take("False") { Ok(false) } else { Err(self.unexpected("True or False")) }
    }

    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        let mut dims = Vec::new();
        self.expect("(")?;
        while !self.take(")") {
            let rest = self.0.trim_start();
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (digits, rest) = rest.split_at(end);
            let dim = digits.parse().map_err(|_| self.unexpected("a dimension"))?;
            dims.push(dim);
            self.0 = rest;
            // Python 2 wrote long integers with a suffix.
            self.take("L");
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(dims)
    }
}

#[cfg(test)]
mod tests {
    use super::{Header, parse};

    #[test]
    fn the_forms_that_numpy_writes() {
        let header = |descr, fortran, shape: &[usize]| Header { descr, fortran, shape: shape.to_vec() };
        let cases = [
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }        \n", header("<f4", false, &[3, 4])),
            ("{'descr': '<f2', 'fortran_order': True, 'shape': (5,), }\n", header("<f2", true, &[5])),
            ("{\"shape\": (), \"descr\": \">f8\", \"fortran_order\": False}", header(">f8", false, &[])),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 4L)}", header("<f4", false, &[3, 4])),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).as_ref(), Ok(&expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_header_is_named() {
        let cases = [
            ("", "`` where `{` belongs"),
            ("{'descr': [('x', '<f4')]}", "structured"),
            ("{'descr': '<f4}", "without an end"),
            ("{'fortran_order': 1}", "True or False"),
            ("{'shape': (-1,)}", "a dimension"),
            ("{'shape': (99999999999999999999999,)}", "a dimension"),
            ("{'shape': ((1,),)}", "a dimension"),
            ("{'size': (1,)}", "unknown key `size`"),
            ("{'descr': '<f4', 'fortran_order': False}", "no `shape`"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} + 1", "goes on"),
            ("{'descr' '<f4'}", "where `:` belongs"),
        ];
        for (text, expected) in cases {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
