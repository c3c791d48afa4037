//! Who does a pass over a row: the calling thread, or all threads, each a part of the row.
//!
//! With at least as many rows as threads, each thread takes whole rows, one after the other as they come
//! ([`over_rows`]); with fewer, and with the feature `autotune`, the rows are done one by one and every pass over a row is
//! divided ([`Exec::pass`]).
//! What decides is made of integers and of prefixes of a total order, so the division cannot change a bit of the outputs;
//! the one floating-point sum only bounds an integer.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use qrita_core::RowMut;
#[cfg(feature = "autotune")]
use qrita_core::{Logit, with_dtype};
use rayon::ThreadPool;

#[cfg(feature = "autotune")]
use crate::effective::TILE;
use crate::workspace::Slot;

/// The threads that one row's passes run on.
pub(crate) struct Exec<'a> {
    #[cfg(feature = "autotune")]
    pool: Option<&'a ThreadPool>,
    pub(crate) slots: &'a mut [Slot],
}

impl<'a> Exec<'a> {
    /// All passes on the calling thread.
    pub(crate) fn serial(slot: &'a mut Slot) -> Self {
        Exec {
            #[cfg(feature = "autotune")]
            pool: None,
            slots: std::slice::from_mut(slot),
        }
    }

    /// Every pass divided among the slots.
    #[cfg(feature = "autotune")]
    pub(crate) fn divided(pool: &'a ThreadPool, slots: &'a mut [Slot]) -> Self {
        Exec { pool: Some(pool), slots }
    }

    /// The same threads, borrowed for a shorter time.
    pub(crate) fn reborrow(&mut self) -> Exec<'_> {
        Exec {
            #[cfg(feature = "autotune")]
            pool: self.pool,
            slots: self.slots,
        }
    }

    /// Runs `part` for consecutive ranges that make up `0 .. len`, in the order of the slots. Ranges start at tiles.
    pub(crate) fn pass(&mut self, len: usize, part: impl Fn(&mut Slot, Range<usize>) + Sync) {
        #[cfg(feature = "autotune")]
        if let Some(pool) = self.pool {
            let each = len.div_ceil(TILE).div_ceil(self.slots.len()) * TILE;
            return share(pool, self.slots.iter_mut().enumerate(), |(i, slot)| {
                part(slot, (i * each).min(len)..((i + 1) * each).min(len));
            });
        }
        part(&mut self.slots[0], 0..len);
    }

    /// As [`pass`](Self::pass), over parts of a row that are written to; `part` is told each one's first id.
    pub(crate) fn pass_mut(&mut self, row: RowMut<'_>, part: impl Fn(&mut Slot, usize, RowMut<'_>) + Sync) {
        #[cfg(feature = "autotune")]
        if let Some(pool) = self.pool {
            let each = row.as_ref().len().div_ceil(TILE).div_ceil(self.slots.len()) * TILE;
            return with_dtype!(RowMut, row, |stored| {
                let parts = stored.chunks_mut(each).zip(self.slots.iter_mut()).enumerate();
                share(pool, parts, |(i, (stored, slot))| part(slot, i * each, Logit::wrap_mut(stored)));
            });
        }
        part(&mut self.slots[0], 0, row);
    }

    /// The slot that holds what the passes were merged into.
    pub(crate) fn first(&mut self) -> &mut Slot {
        &mut self.slots[0]
    }
}

/// Runs `row` for every row, each on one thread, the next free thread taking the next row.
pub(crate) fn over_rows(pool: &ThreadPool, slots: &mut [Slot], rows: usize, row: impl Fn(&mut Slot, usize) + Sync) {
    let next = AtomicUsize::new(0);
    share(pool, slots.iter_mut(), |slot| {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= rows {
                return;
            }
            row(slot, i);
        }
    });
}

/// Runs `work` for each part: the first on the calling thread, which would else sleep until it is woken, the others in the
/// pool.
fn share<T: Send>(pool: &ThreadPool, mut parts: impl Iterator<Item = T>, work: impl Fn(T) + Sync) {
    let first = parts.next();
    let work = &work;
    pool.in_place_scope(|scope| {
        for part in parts {
            scope.spawn(move |_| work(part));
        }
        if let Some(first) = first {
            work(first);
        }
    });
}
