//! The functions as C calls them: every output, and what is refused.

use std::ffi::{CStr, c_void};
use std::{mem, ptr};

use qrita::{Backend as _, Candidates, Logits, Outputs, Params, Plan, Status, Top, cpu::CpuBackend};
use qrita_capi::*;

const ROWS: usize = 3;
const VOCAB: usize = 100;

fn message() -> String {
    // SAFETY: the message lives until this thread's next failure.
    unsafe { CStr::from_ptr(qrita_message()) }.to_str().unwrap().to_owned()
}

fn sampler() -> *mut QritaSampler {
    let mut sampler = ptr::null_mut();
    // SAFETY: the name ends with a zero byte, and there is room for a pointer.
    assert_eq!(unsafe { qrita_create(c"cpu".as_ptr(), 1, &raw mut sampler) }, QritaCode::Ok, "{}", message());
    sampler
}

fn params() -> QritaParams {
    let mut params = mem::MaybeUninit::uninit();
    // SAFETY: there is room, and it is written to.
    unsafe {
        assert_eq!(qrita_params_init(params.as_mut_ptr()), QritaCode::Ok);
        params.assume_init()
    }
}

fn outputs() -> QritaOutputs {
    let mut outputs = mem::MaybeUninit::uninit();
    // SAFETY: as above.
    unsafe {
        assert_eq!(qrita_outputs_init(outputs.as_mut_ptr()), QritaCode::Ok);
        outputs.assume_init()
    }
}

fn data() -> Vec<f32> {
    (0..ROWS * VOCAB).map(|at| ((at * 37) % 101) as f32 / 10.0).collect()
}

fn logits(data: &mut [f32]) -> QritaLogits {
    let data = data.as_mut_ptr().cast::<c_void>();
    QritaLogits { data, dtype: QRITA_F32, rows: ROWS, vocab: VOCAB, stride: VOCAB }
}

/// Each output is the library's own, under parameters one a row.
#[test]
fn every_output() {
    const DRAWS: usize = 2;
    const CAPACITY: usize = 20;
    const TOP: usize = 4;
    let sampler = sampler();
    let mut data = data();
    let (ks, ps, seeds, streams) = ([5, 9, 0], [1.0, 0.8, 0.5], [1u64, 2, 3], [4u32, 5, 6]);
    let (temperatures, min_ps, positions) = ([1.0f32, 0.5, 2.0], [0.0f32, 0.01, 0.0], [7u64, 8, 9]);

    let mut right_words = [(); 6].map(|()| vec![0u32; ROWS * VOCAB]);
    let mut right_floats = [(); 6].map(|()| vec![0f32; ROWS * VOCAB]);
    let mut right_status = vec![Status::OK; ROWS];
    let (mut found_words, mut found_floats) = (right_words.clone(), right_floats.clone());
    {
        let [kept, token, rank, ids, top_ids, _] = &mut right_words;
        let [logprob, raw_logprob, candidate_logits, logprobs, top_logprobs, probabilities] = &mut right_floats;
        let params = Params {
            temperature: (&temperatures).into(),
            min_p: (&min_ps).into(),
            position: (&positions).into(),
            stream: (&streams).into(),
            ..Params::default().top_k(&ks).top_p(&ps).seed(&seeds).draws(DRAWS as u32)
        };
        let candidates = Candidates {
            capacity: CAPACITY,
            ids: &mut ids[..ROWS * CAPACITY],
            logits: &mut candidate_logits[..ROWS * CAPACITY],
            logprobs: &mut logprobs[..ROWS * CAPACITY],
        };
        let top = Top { n: TOP, ids: &mut top_ids[..ROWS * TOP], logprobs: &mut top_logprobs[..ROWS * TOP] };
        let mut outputs = Outputs {
            status: Some(&mut right_status),
            kept: Some(&mut kept[..ROWS]),
            candidates: Some(candidates),
            token: Some(&mut token[..ROWS * DRAWS]),
            logprob: Some(&mut logprob[..ROWS * DRAWS]),
            raw_logprob: Some(&mut raw_logprob[..ROWS * DRAWS]),
            rank: Some(&mut rank[..ROWS * DRAWS]),
            top: Some(top),
            probabilities: Some(probabilities),
        };
        let backend = CpuBackend::new();
        let logits = Logits::new(&data, VOCAB).unwrap().into();
        backend.run(logits, &params, &Plan::default(), &mut outputs, &mut backend.workspace()).unwrap();
    }

    let mut given = params();
    given.draws = DRAWS as u32;
    (given.top_ks, given.top_ps, given.seeds) = (ks.as_ptr(), ps.as_ptr(), seeds.as_ptr());
    (given.temperatures, given.min_ps) = (temperatures.as_ptr(), min_ps.as_ptr());
    (given.positions, given.streams) = (positions.as_ptr(), streams.as_ptr());
    let mut asked = outputs();
    let [kept, token, rank, ids, top_ids, status] = found_words.each_mut().map(|words| words.as_mut_ptr());
    let [logprob, raw_logprob, candidate_logits, logprobs, top_logprobs, probabilities] =
        found_floats.each_mut().map(|floats| floats.as_mut_ptr());
    asked = QritaOutputs {
        status,
        kept,
        token,
        logprob,
        raw_logprob,
        rank,
        probabilities,
        capacity: CAPACITY as u32,
        candidate_ids: ids,
        candidate_logits,
        candidate_logprobs: logprobs,
        top: TOP as u32,
        top_ids,
        top_logprobs,
        ..asked
    };
    // SAFETY: all arrays have what their fields say.
    let code = unsafe { qrita_run(sampler, &logits(&mut data), &given, &asked) };
    assert_eq!(code, QritaCode::Ok, "{}", message());
    for (row, status) in right_status.iter().enumerate() {
        right_words[5][row] = status.bits();
    }
    assert_eq!(found_words, right_words);
    assert_eq!(found_floats, right_floats);
    assert!(right_words[0][..ROWS].iter().all(|&kept| kept > 0));
    // SAFETY: it is not used again.
    unsafe { qrita_destroy(sampler) };
}

#[test]
fn what_is_refused_is_left_untouched() {
    let sampler = sampler();
    let (mut data, before) = (data(), data());
    let of_rows = logits(&mut data);
    let refused = |logits: *const QritaLogits, params: *const QritaParams, outputs: *const QritaOutputs| {
        // SAFETY: what is not null is of this test's memory.
        let code = unsafe { qrita_run(sampler, logits, params, outputs) };
        (code, message())
    };
    let mask = QritaOutputs { mask: 1, ..outputs() };
    let check = |params: QritaParams, outputs: QritaOutputs, logits: QritaLogits, code: QritaCode, part: &str| {
        let (found, text) = refused(&logits, &params, &outputs);
        assert!(found == code && text.contains(part), "{found:?}: {text}");
    };
    let fine = params();
    check(QritaParams { top_p: -1.0, ..fine }, mask, of_rows, QritaCode::Param, "top_p is -1");
    check(QritaParams { draws: 0, ..fine }, mask, of_rows, QritaCode::Param, "draws is 0");
    check(QritaParams { ties: 2, ..fine }, mask, of_rows, QritaCode::Param, "ties is 2");
    check(QritaParams { order: 9, ..fine }, mask, of_rows, QritaCode::Param, "order is 9");
    check(QritaParams { abi: 0, ..fine }, mask, of_rows, QritaCode::Abi, "params are of ABI 0");
    check(fine, QritaOutputs { abi: 2, ..mask }, of_rows, QritaCode::Abi, "outputs are of ABI 2");
    check(fine, mask, QritaLogits { dtype: 3, ..of_rows }, QritaCode::Param, "dtype is 3");
    check(fine, mask, QritaLogits { vocab: 0, ..of_rows }, QritaCode::Shape, "vocab is 0");
    check(fine, mask, QritaLogits { stride: 1, ..of_rows }, QritaCode::Shape, "row stride is 1");
    check(fine, mask, QritaLogits { rows: usize::MAX, ..of_rows }, QritaCode::Shape, "elements that memory can have");
    check(fine, mask, QritaLogits { data: ptr::null_mut(), ..of_rows }, QritaCode::Pointer, "data is null");
    let odd = of_rows.data.wrapping_byte_add(1);
    check(fine, mask, QritaLogits { data: odd, ..of_rows }, QritaCode::Shape, "a multiple of an element's size");
    let mut id = 0;
    let half = QritaOutputs { candidate_ids: &raw mut id, ..mask };
    check(fine, half, of_rows, QritaCode::Pointer, "candidate_logits is null");
    let half = QritaOutputs { top_ids: &raw mut id, ..mask };
    check(fine, half, of_rows, QritaCode::Pointer, "top_logprobs is null");
    assert_eq!(refused(&of_rows, ptr::null(), &mask).0, QritaCode::Pointer);
    assert_eq!(refused(&of_rows, &fine, ptr::null()).0, QritaCode::Pointer);
    assert_eq!(refused(ptr::null(), &fine, &mask), (QritaCode::Pointer, "logits is null".to_owned()));

    let none = QritaLogits { rows: 0, data: ptr::null_mut(), ..of_rows };
    // SAFETY: no row is looked at.
    assert_eq!(unsafe { qrita_run(sampler, &none, &fine, &mask) }, QritaCode::Ok);
    assert_eq!(data, before);
    // SAFETY: it is not used again; null is none.
    unsafe {
        assert_eq!(qrita_destroy(sampler), QritaCode::Ok);
        assert_eq!(qrita_destroy(ptr::null_mut()), QritaCode::Ok);
        assert_eq!(qrita_create(c"cpu".as_ptr(), 1, ptr::null_mut()), QritaCode::Pointer);
        let mut sampler = ptr::null_mut();
        assert_eq!(qrita_create(c"none".as_ptr(), 1, &raw mut sampler), QritaCode::Unsupported);
        assert!(sampler.is_null() && message().starts_with("there is no backend `none`"), "{}", message());
        assert_eq!(qrita_params_init(ptr::null_mut()), QritaCode::Pointer);
    }
}

/// Also where there is no device, and in a build without CUDA.
#[test]
fn device_functions_refuse_null() {
    let (fine, none) = (params(), outputs());
    let mut bytes = 0;
    let logits = logits(&mut []);
    // SAFETY: what is not null is of this test's memory.
    unsafe {
        assert_eq!(qrita_cuda_create(0, QRITA_F32, ptr::null_mut()), QritaCode::Pointer);
        let mut sampler = ptr::null_mut();
        assert_ne!(qrita_cuda_create(0, 7, &raw mut sampler), QritaCode::Ok);
        assert!(sampler.is_null());
        assert_eq!(qrita_cuda_workspace_bytes(sampler, 1, 1, &raw mut bytes), QritaCode::Pointer);
        let to = (&raw mut bytes).cast();
        assert_eq!(qrita_cuda_row_args(sampler, &fine, 0, 1, to), QritaCode::Pointer);
        let null = ptr::null_mut();
        let code = qrita_cuda_launch(sampler, null, &logits, &fine, null, &none, null, 0);
        assert_eq!(code, QritaCode::Pointer);
        assert_eq!(qrita_cuda_destroy(sampler), QritaCode::Ok);
    }
    assert_eq!(qrita_cuda_row_args_bytes() > 0, cfg!(feature = "cuda"));
}
