//! What calls are given: logits, parameters, outputs.

use std::{mem, slice};

use qrita::{Candidates, Dtype, Error, Logit, NO_TOKEN, Order, Outputs, Param, Params, Shape, Status, Ties, Top};

use crate::code::{Failure, QritaCode, enter};

/// The version of this header: of functions, structs and constants. A library that has another refuses the structs of this one.
pub const QRITA_ABI: u32 = 1;

/// `QritaLogits.dtype`: IEEE single precision.
pub const QRITA_F32: u32 = 0;
/// `QritaLogits.dtype`: IEEE half precision.
pub const QRITA_F16: u32 = 1;
/// `QritaLogits.dtype`: the upper half of single precision.
pub const QRITA_BF16: u32 = 2;

/// `QritaParams.ties`: of equal logits a cut keeps those with the lowest ids, as a stable sort does.
pub const QRITA_LOWEST_ID: u32 = 0;
/// `QritaParams.ties`: a cut keeps all that equal the last one kept.
pub const QRITA_KEEP_ALL: u32 = 1;
/// `QritaParams.order`: top-p is over the mass that top-k left.
pub const QRITA_TOP_K_THEN_TOP_P: u32 = 0;
/// `QritaParams.order`: top-p is over the mass before top-k; both cuts hold.
pub const QRITA_JOINT: u32 = 1;

/// A token or a rank that a row does not have: it has no candidate.
pub const QRITA_NO_TOKEN: u32 = 0xFFFF_FFFF;
/// A bit of a row's status: an allowed logit is NaN, and counts as minus infinity.
pub const QRITA_NAN: u32 = 1;
/// A bit of a row's status: an allowed logit is plus infinity.
pub const QRITA_POS_INF: u32 = 2;
/// A bit of a row's status: it has no candidate.
pub const QRITA_EMPTY: u32 = 4;
/// A bit of a row's status: it keeps more tokens than there is room for candidates.
pub const QRITA_OVERFLOW: u32 = 8;

const _: () = assert!(QRITA_NO_TOKEN == NO_TOKEN);
const _: () = assert!(QRITA_F32 == Dtype::F32 as u32 && QRITA_F16 == Dtype::F16 as u32);
const _: () = assert!(QRITA_BF16 == Dtype::Bf16 as u32);

/// Rows of logits: `rows` of `vocab` logits, `stride` elements from one row's first to the next one's.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QritaLogits {
    /// The first logit, aligned as one logit is. It is written to only where `QritaOutputs.mask` asks for that.
    pub data: *mut std::ffi::c_void,
    /// `QRITA_F32`, `QRITA_F16` or `QRITA_BF16`.
    pub dtype: u32,
    /// How many rows; 0 is nothing to do.
    pub rows: usize,
    /// Logits of a row: 1 to 2097152.
    pub vocab: usize,
    /// At least `vocab`.
    pub stride: usize,
}

/// The parameters of a call: one value for all rows and, where the array of the same name is not null, one a row instead.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QritaParams {
    /// `QRITA_ABI`, as `qrita_params_init` writes it.
    pub abi: u32,
    /// How many tokens to draw from each row, with replacement: at least 1.
    pub draws: u32,
    /// `QRITA_LOWEST_ID` or `QRITA_KEEP_ALL`.
    pub ties: u32,
    /// `QRITA_TOP_K_THEN_TOP_P` or `QRITA_JOINT`.
    pub order: u32,
    /// Divides the distances from the row's maximum: finite, at least 0; 0 is greedy.
    pub temperature: f32,
    /// How many tokens to keep at most; 0 is off.
    pub top_k: u32,
    /// The share of the mass to keep: at least 0; 1 and more is off.
    pub top_p: f32,
    /// The least weight to keep, relative to the maximum's: 0 to 1; 0 is off.
    pub min_p: f32,
    /// The key of the row's random bits.
    pub seed: u64,
    /// The row's place in its own sequence: the counter of its random bits.
    pub position: u64,
    /// Tells apart independent uses of one seed.
    pub stream: u32,
    /// One temperature a row, or null.
    pub temperatures: *const f32,
    /// One top-k a row, or null.
    pub top_ks: *const u32,
    /// One top-p a row, or null.
    pub top_ps: *const f32,
    /// One min-p a row, or null.
    pub min_ps: *const f32,
    /// One seed a row, or null.
    pub seeds: *const u64,
    /// One position a row, or null.
    pub positions: *const u64,
    /// One stream a row, or null.
    pub streams: *const u32,
}

/// The outputs of a call: any combination; what is null is not computed. One element a row, of the drawn tokens
/// `QritaParams.draws` a row.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QritaOutputs {
    /// `QRITA_ABI`, as `qrita_outputs_init` writes it.
    pub abi: u32,
    /// Not 0: logits that are not kept become minus infinity, in place.
    pub mask: u32,
    /// Bits of a row's status.
    pub status: *mut u32,
    /// How many tokens the row keeps.
    pub kept: *mut u32,
    /// The tokens drawn.
    pub token: *mut u32,
    /// Their log-probabilities among the kept tokens.
    pub logprob: *mut f32,
    /// Their log-probabilities in the whole row, before the filters.
    pub raw_logprob: *mut f32,
    /// How many tokens precede each in the order.
    pub rank: *mut u32,
    /// The probability of every token among the kept, `vocab` a row; 0 of what is not kept.
    pub probabilities: *mut f32,
    /// Room for so many kept tokens a row, in order, in the three arrays that follow. A row that keeps more gets `QRITA_OVERFLOW`.
    pub capacity: u32,
    /// Their ids. Null: no candidates are asked for.
    pub candidate_ids: *mut u32,
    /// Their logits. Not null where ids are not.
    pub candidate_logits: *mut f32,
    /// Their log-probabilities among the kept tokens. Not null where ids are not.
    pub candidate_logprobs: *mut f32,
    /// Room for so many first candidates of the whole row a row, at most 1024, in the two arrays that follow.
    pub top: u32,
    /// Their ids, `QRITA_NO_TOKEN` where there are no more. Null: they are not asked for.
    pub top_ids: *mut u32,
    /// Their log-probabilities in the whole row. Not null where ids are not.
    pub top_logprobs: *mut f32,
}

/// The ABI of this library: what it takes is of a header with this `QRITA_ABI`.
#[unsafe(no_mangle)]
pub extern "C" fn qrita_abi() -> u32 {
    QRITA_ABI
}

/// Writes parameters that filter nothing and draw one token, at temperature 1 and seed 0.
///
/// # Safety
/// `params` is null, which is refused, or has room for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qrita_params_init(params: *mut QritaParams) -> QritaCode {
    let defaults = QritaParams {
        abi: QRITA_ABI,
        draws: 1,
        ties: QRITA_LOWEST_ID,
        order: QRITA_TOP_K_THEN_TOP_P,
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: 0,
        position: 0,
        stream: 0,
        temperatures: std::ptr::null(),
        top_ks: std::ptr::null(),
        top_ps: std::ptr::null(),
        min_ps: std::ptr::null(),
        seeds: std::ptr::null(),
        positions: std::ptr::null(),
        streams: std::ptr::null(),
    };
    // SAFETY: the caller's promise.
    unsafe { init(params, defaults, "params") }
}

/// Writes outputs that ask for nothing.
///
/// # Safety
/// `outputs` is null, which is refused, or has room for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qrita_outputs_init(outputs: *mut QritaOutputs) -> QritaCode {
    let nothing = QritaOutputs {
        abi: QRITA_ABI,
        mask: 0,
        status: std::ptr::null_mut(),
        kept: std::ptr::null_mut(),
        token: std::ptr::null_mut(),
        logprob: std::ptr::null_mut(),
        raw_logprob: std::ptr::null_mut(),
        rank: std::ptr::null_mut(),
        probabilities: std::ptr::null_mut(),
        capacity: 0,
        candidate_ids: std::ptr::null_mut(),
        candidate_logits: std::ptr::null_mut(),
        candidate_logprobs: std::ptr::null_mut(),
        top: 0,
        top_ids: std::ptr::null_mut(),
        top_logprobs: std::ptr::null_mut(),
    };
    // SAFETY: the caller's promise.
    unsafe { init(outputs, nothing, "outputs") }
}

/// Writes a struct.
///
/// # Safety
/// `to` is null or has room for it.
unsafe fn init<T>(to: *mut T, value: T, what: &str) -> QritaCode {
    enter(|| {
        if to.is_null() {
            return Err(Failure::null(what));
        }
        // SAFETY: the caller's promise, and it is not null.
        unsafe { to.write(value) };
        Ok(())
    })
}

/// The struct at an address, which is of this ABI.
///
/// # Safety
/// `from` is null, which is refused, or of a struct that starts with its ABI and, if that is this library's, is a `T`.
pub(crate) unsafe fn read<T: Copy>(from: *const T, what: &str) -> Result<T, Failure> {
    if from.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: the caller's promise.
    let abi = unsafe { from.cast::<u32>().read() };
    if abi != QRITA_ABI {
        let message = format!("{what} are of ABI {abi}, and the library's is {QRITA_ABI}: initialise them");
        return Err(Failure::new(QritaCode::Abi, message));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { from.read() })
}

/// The elements at an address; none for null.
///
/// # Safety
/// The address is null or of `len` elements that nobody writes to while they are lent.
unsafe fn elements<'a, T>(from: *const T, len: usize, what: &'static str) -> Result<Option<&'a [T]>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    is_addressable::<T>(from.addr(), len, what)?;
    // SAFETY: the caller's promise; aligned, and of a length that there is.
    Ok(Some(unsafe { slice::from_raw_parts(from, len) }))
}

/// The elements at an address, to write to; none for null.
///
/// # Safety
/// The address is null or of `len` elements that are nobody else's while they are lent.
unsafe fn elements_mut<'a, T>(from: *mut T, len: usize, what: &'static str) -> Result<Option<&'a mut [T]>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    is_addressable::<T>(from.addr(), len, what)?;
    // SAFETY: as above.
    Ok(Some(unsafe { slice::from_raw_parts_mut(from, len) }))
}

/// Refuses what no slice can be of.
fn is_addressable<T>(address: usize, len: usize, what: &'static str) -> Result<(), Failure> {
    if !address.is_multiple_of(align_of::<T>()) {
        return Err(Error::Shape { what, value: address, expected: "a multiple of an element's size" }.into());
    }
    let fits = len.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if fits { Ok(()) } else { Err(Error::Shape { what, value: len, expected: "elements that memory can have" }.into()) }
}

/// The dtype that a number stands for.
pub(crate) fn dtype(number: u32) -> Result<Dtype, Failure> {
    match number {
        QRITA_F32 => Ok(Dtype::F32),
        QRITA_F16 => Ok(Dtype::F16),
        QRITA_BF16 => Ok(Dtype::Bf16),
        other => Err(Failure::new(QritaCode::Param, format!("dtype is {other}: it must be 0, 1 or 2"))),
    }
}

impl QritaLogits {
    pub(crate) fn dtype(&self) -> Result<Dtype, Failure> {
        dtype(self.dtype)
    }

    /// How many elements lie from the first row's first to the last row's last.
    fn span(&self) -> Result<usize, Failure> {
        let &QritaLogits { rows, vocab, stride, .. } = self;
        Shape { rows, vocab, stride }.validate(usize::MAX)?;
        Ok(rows.checked_sub(1).map_or(0, |last| last.saturating_mul(stride).saturating_add(vocab)))
    }

    /// The elements from the first row's first to the last row's last.
    ///
    /// # Safety
    /// They are at the address, unless there are none, and nobody writes to them for `'a`.
    pub(crate) unsafe fn elements<'a, T: Logit>(&self) -> Result<&'a [T], Failure> {
        match self.span()? {
            0 => Ok(&[]),
            // SAFETY: the caller's promise.
            len => unsafe { elements(self.data.cast_const().cast::<T>(), len, "logits") }?
                .ok_or_else(|| Failure::null("logits' data")),
        }
    }

    /// The same, to write to.
    ///
    /// # Safety
    /// They are at the address, unless there are none, and nobody else's for `'a`.
    pub(crate) unsafe fn elements_mut<'a, T: Logit>(&self) -> Result<&'a mut [T], Failure> {
        match self.span()? {
            0 => Ok(&mut []),
            // SAFETY: the caller's promise.
            len => unsafe { elements_mut(self.data.cast::<T>(), len, "logits") }?
                .ok_or_else(|| Failure::null("logits' data")),
        }
    }
}

impl QritaParams {
    /// As the library takes them.
    ///
    /// # Safety
    /// Every array that is not null has `rows` elements, and lives for `'a`.
    pub(crate) unsafe fn lend<'a>(&self, rows: usize) -> Result<Params<'a>, Failure> {
        /// One value, or the array's.
        ///
        /// # Safety
        /// As above.
        unsafe fn param<'a, T>(
            one: T,
            each: *const T,
            rows: usize,
            what: &'static str,
        ) -> Result<Param<'a, T>, Failure> {
            // SAFETY: the caller's promise.
            Ok(unsafe { elements(each, rows, what) }?.map_or(Param::All(one), Param::PerRow))
        }
        let ties = match self.ties {
            QRITA_LOWEST_ID => Ties::LowestId,
            QRITA_KEEP_ALL => Ties::KeepAll,
            other => return Err(Failure::new(QritaCode::Param, format!("ties is {other}: it must be 0 or 1"))),
        };
        let order = match self.order {
            QRITA_TOP_K_THEN_TOP_P => Order::TopKThenTopP,
            QRITA_JOINT => Order::Joint,
            other => return Err(Failure::new(QritaCode::Param, format!("order is {other}: it must be 0 or 1"))),
        };
        // SAFETY: the caller's promise.
        unsafe {
            Ok(Params {
                temperature: param(self.temperature, self.temperatures, rows, "temperatures")?,
                top_k: param(self.top_k, self.top_ks, rows, "top_ks")?,
                top_p: param(self.top_p, self.top_ps, rows, "top_ps")?,
                min_p: param(self.min_p, self.min_ps, rows, "min_ps")?,
                seed: param(self.seed, self.seeds, rows, "seeds")?,
                position: param(self.position, self.positions, rows, "positions")?,
                stream: param(self.stream, self.streams, rows, "streams")?,
                draws: self.draws,
                ties,
                order,
                ..Params::default()
            })
        }
    }

    /// Whether an array has a value a row.
    #[cfg(feature = "cuda")]
    pub(crate) fn has_arrays(&self) -> bool {
        let QritaParams { temperatures, top_ks, top_ps, min_ps, seeds, positions, streams, .. } = *self;
        let are_null = temperatures.is_null()
            && top_ks.is_null()
            && top_ps.is_null()
            && min_ps.is_null()
            && seeds.is_null()
            && positions.is_null()
            && streams.is_null();
        !are_null
    }
}

impl QritaOutputs {
    /// As the library takes them; the mask is not among them.
    ///
    /// # Safety
    /// Every array that is not null has as many elements as its field says, and they are nobody else's for `'a`.
    pub(crate) unsafe fn lend<'a>(&self, rows: usize, vocab: usize, draws: u32) -> Result<Outputs<'a>, Failure> {
        let drawn = rows.saturating_mul(draws as usize);
        let (capacity, n) = (self.capacity as usize, self.top as usize);
        let (room, listed) = (rows.saturating_mul(capacity), rows.saturating_mul(n));
        // SAFETY: the caller's promise. A status is transparently its bits.
        unsafe {
            let candidates = match elements_mut(self.candidate_ids, room, "candidate_ids")? {
                None => None,
                Some(ids) => Some(Candidates {
                    capacity,
                    ids,
                    logits: elements_mut(self.candidate_logits, room, "candidate_logits")?
                        .ok_or_else(|| Failure::null("candidate_logits"))?,
                    logprobs: elements_mut(self.candidate_logprobs, room, "candidate_logprobs")?
                        .ok_or_else(|| Failure::null("candidate_logprobs"))?,
                }),
            };
            let top = match elements_mut(self.top_ids, listed, "top_ids")? {
                None => None,
                Some(ids) => Some(Top {
                    n,
                    ids,
                    logprobs: elements_mut(self.top_logprobs, listed, "top_logprobs")?
                        .ok_or_else(|| Failure::null("top_logprobs"))?,
                }),
            };
            Ok(Outputs {
                status: elements_mut(self.status.cast::<Status>(), rows, "status")?,
                kept: elements_mut(self.kept, rows, "kept")?,
                candidates,
                token: elements_mut(self.token, drawn, "token")?,
                logprob: elements_mut(self.logprob, drawn, "logprob")?,
                raw_logprob: elements_mut(self.raw_logprob, drawn, "raw_logprob")?,
                rank: elements_mut(self.rank, drawn, "rank")?,
                top,
                probabilities: elements_mut(self.probabilities, rows.saturating_mul(vocab), "probabilities")?,
            })
        }
    }
}

const _: () = assert!(mem::size_of::<Status>() == mem::size_of::<u32>());
