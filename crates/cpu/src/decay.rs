//! What a step leaves of a row's standing penalties, once the row has all its outputs.

use qrita_core::{RowDecay, RowMut};

use crate::exec::Exec;

/// Takes the penalties on behind the token drawn; an id that the row does not have is none.
pub(crate) fn update(penalties: &mut [f32], values: &RowDecay, token: Option<u32>, exec: &mut Exec<'_>) {
    let token = token.map(|token| token as usize);
    let raised = token.and_then(|token| penalties.get(token)).map(|&penalty| values.raised(penalty));
    exec.pass_mut(RowMut::F32(penalties), |_, _, part| {
        let RowMut::F32(part) = part else { return };
        part.iter_mut().for_each(|penalty| *penalty = values.faded(*penalty));
    });
    if let (Some(token), Some(raised)) = (token, raised) {
        penalties[token] = raised;
    }
}
