//! What the fuzz targets share.

use qrita_cli::read;
use qrita_core::Logits;

/// Rows of a tensor that are read: a reader that is right for these is right for all.
const ROWS: usize = 64;

/// Reads `bytes` as a file of tensors, and every tensor in it, by each way there is.
///
/// # Panics
/// If the file is taken and its tensors can not be read, or differ by the way they are read.
pub fn read_tensors(bytes: &[u8]) {
    let Ok(contents) = read(bytes) else { return };
    let Ok(tensors) = contents.select(&[]) else { return };
    for tensor in tensors {
        let named = contents.select(&[tensor.name().to_owned()]).expect("a tensor is found by its name");
        assert_eq!((named[0].rows(), named[0].vocab()), (tensor.rows(), tensor.vocab()));

        let end = tensor.rows().min(ROWS);
        let (mut lying, mut copied) = (tensor.read(0..end), tensor.copy(0..end));
        assert_eq!(copied.bytes().len(), end * tensor.vocab() * tensor.dtype().size());
        let (lying_bits, copied_bits) = (bits(&lying.logits().unwrap()), bits(&copied.logits().unwrap()));
        assert_eq!(lying_bits, copied_bits);
        if let Some(last) = end.checked_sub(1) {
            assert_eq!(bits(&tensor.read(last..end).logits().unwrap()), lying_bits[last * tensor.vocab()..]);
        }
        assert_eq!(bits(&lying.logits_mut().unwrap().as_ref()), bits(&copied.logits_mut().unwrap().as_ref()));
    }
}

fn bits(logits: &Logits<'_>) -> Vec<u32> {
    let row = |row| {
        let row = logits.row(row);
        (0..logits.vocab()).map(move |id| row.get(id).to_bits())
    };
    (0..logits.rows()).flat_map(row).collect()
}
