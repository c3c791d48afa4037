//! What `filter` and `sample` print and write: the exact form, and the oracle's answers on the logits of real models.
#![allow(missing_docs)]

mod common;

use common::{Files, INF, f32_bytes, fixture, npy, prints, safetensors};
use qrita::{Backend, Filtered, Logits, Params, Plan, Sampled, Status, bf16, f16};
use qrita_testkit::oracle::OracleBackend;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde::Deserialize;

const ROWS: [f32; 12] = [0.0, 3.0, 2.0, 3.0, INF, 1.0, INF, f32::NAN, -INF, -INF, -INF, -INF];

#[test]
fn the_form_of_filter() {
    let files = Files::new();
    let file = files.logits("logits.safetensors", &[3, 4], &ROWS);
    assert_eq!(
        prints("filter", &file, "--top-k 2 --format jsonl"),
        "{\"row\":0,\"status\":[],\"kept\":2,\"ids\":[1,3],\"logits\":[3.0,3.0],\
         \"logprobs\":[-0.6931472,-0.6931472]}\n\
         {\"row\":1,\"status\":[\"nan\",\"pos_inf\"],\"kept\":2,\"ids\":[0,2],\"logits\":[\"inf\",\"inf\"],\
         \"logprobs\":[-0.6931472,-0.6931472]}\n\
         {\"row\":2,\"status\":[\"empty\"],\"kept\":0,\"ids\":[],\"logits\":[],\"logprobs\":[]}\n"
    );
    assert_eq!(
        prints("filter", &file, "--rows 1..2 --format jsonl"),
        "{\"row\":1,\"status\":[\"nan\",\"pos_inf\"],\"kept\":3,\"ids\":[0,2,1],\"logits\":[\"inf\",\"inf\",1.0],\
         \"logprobs\":[-0.6931472,-0.6931472,\"-inf\"]}\n"
    );
}

#[test]
fn the_form_of_sample() {
    let files = Files::new();
    let file = files.logits("logits.safetensors", &[3, 4], &ROWS);
    assert_eq!(
        prints("sample", &file, "--temperature 0 --seed 5 --position 2 --format jsonl"),
        "{\"row\":0,\"status\":[],\"token\":1,\"logprob\":0.0,\"raw_logprob\":-0.6931472,\"rank\":0,\"kept\":1}\n\
         {\"row\":1,\"status\":[\"nan\",\"pos_inf\"],\"token\":0,\"logprob\":0.0,\"raw_logprob\":-0.6931472,\
         \"rank\":0,\"kept\":1}\n\
         {\"row\":2,\"status\":[\"empty\"],\"token\":null,\"logprob\":null,\"raw_logprob\":null,\"rank\":null,\
         \"kept\":0}\n"
    );
}

#[test]
fn the_form_of_several_draws_and_first_candidates() {
    let files = Files::new();
    let file = files.logits("logits.safetensors", &[3, 4], &ROWS);
    // The first three random numbers of seed and position 0 are 0.881, 0.075 and 0.680 of 2^64. Both rows keep two tokens
    // of equal weight: those beyond a half draw the second. ln(1 + 2·e^3 + e^2) is 3.8828028.
    let lines = [
        "{\"row\":0,\"status\":[],\"token\":[3,1,3],\"logprob\":[-0.6931472,-0.6931472,-0.6931472],\
         \"raw_logprob\":[-0.88280284,-0.88280284,-0.88280284],\"rank\":[1,0,1],\"kept\":2,\"top_ids\":[1,3,2,0],\
         \"top_logprobs\":[-0.88280284,-0.88280284,-1.8828028,-3.8828027]}\n",
        "{\"row\":1,\"status\":[\"nan\",\"pos_inf\"],\"token\":[2,0,2],\"logprob\":[-0.6931472,-0.6931472,-0.6931472],\
         \"raw_logprob\":[-0.6931472,-0.6931472,-0.6931472],\"rank\":[1,0,1],\"kept\":2,\"top_ids\":[0,2,1],\
         \"top_logprobs\":[-0.6931472,-0.6931472,\"-inf\"]}\n",
        "{\"row\":2,\"status\":[\"empty\"],\"token\":[null,null,null],\"logprob\":[null,null,null],\
         \"raw_logprob\":[null,null,null],\"rank\":[null,null,null],\"kept\":0,\"top_ids\":[],\"top_logprobs\":[]}\n",
    ];
    assert_eq!(prints("sample", &file, "--top-k 2 --draws 3 --top 4 --format jsonl"), lines.concat());
    // Each alone. One draw that is asked for is a list; no first candidates are as none asked for.
    assert_eq!(
        prints("sample", &file, "--top-k 2 --draws 1 --top 0 --rows 1 --format jsonl"),
        "{\"row\":0,\"status\":[],\"token\":[3],\"logprob\":[-0.6931472],\"raw_logprob\":[-0.88280284],\"rank\":[1],\
         \"kept\":2}\n"
    );
    assert_eq!(
        prints("sample", &file, "--top-k 2 --top 1 --rows 1 --format jsonl"),
        "{\"row\":0,\"status\":[],\"token\":3,\"logprob\":-0.6931472,\"raw_logprob\":-0.88280284,\"rank\":1,\
         \"kept\":2,\"top_ids\":[1],\"top_logprobs\":[-0.88280284]}\n"
    );

    // The table: a line a draw, what is listed of the row beside the first.
    let table = |args: &str| -> Vec<Vec<String>> {
        let printed = prints("sample", &file, args);
        printed.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let lines = table("--top-k 2 --draws 2 --rows 1");
    assert_eq!(lines[1][..4], ["row", "draw", "kept", "status"]);
    let raw = "-0.8828";
    assert_eq!(lines[2], ["0", "0", "2", "ok", "3", "1", "-0.6931", raw, "1", "0.5000", "3", "0.5000"]);
    assert_eq!(lines[3..], [["0", "1", "2", "ok", "1", "0", "-0.6931", raw]]);
    let lines = table("--top-k 2 --draws 2 --top 3");
    assert_eq!(lines[2][8..], ["1", raw, "3", raw, "2", "-1.8828"]);
    assert_eq!(
        lines[6..],
        [["2", "0", "0", "empty", "-", "-", "-", "-"], ["2", "1", "0", "empty", "-", "-", "-", "-"]]
    );
    let lines = table("--top-k 2 --top 2 --rows 1");
    assert_eq!(lines[2], ["0", "2", "ok", "3", "1", "-0.6931", raw, "1", raw, "3", raw]);
}

#[test]
fn several_tensors_are_named_in_order() {
    let files = Files::new();
    let (a, b) = (f32_bytes(&[1.0, 2.0]), f32_bytes(&[5.0, 4.0]));
    let file = files.write("two", safetensors(&[("b", Dtype::F32, &[2], &b), ("a", Dtype::F32, &[1, 2], &a)]));
    let line = |tensor: &str, id: u32, logit: &str| {
        format!(
            "{{{tensor}\"row\":0,\"status\":[],\"kept\":1,\"ids\":[{id}],\"logits\":[{logit}],\"logprobs\":[0.0]}}\n"
        )
    };
    let (first, second) = (line("\"tensor\":\"a\",", 1, "2.0"), line("\"tensor\":\"b\",", 0, "5.0"));
    assert_eq!(prints("filter", &file, "--top-k 1 --format jsonl"), first.clone() + &second);
    assert_eq!(prints("filter", &file, "--top-k 1 --format jsonl --tensor b --tensor a"), second + &first);
    // A tensor named twice is used once, and a single one is not named.
    assert_eq!(prints("filter", &file, "--top-k 1 --format jsonl --tensor b --tensor b"), line("", 0, "5.0"));
}

#[test]
#[cfg_attr(not(feature = "duplicates"), ignore = "the answers are those of a build that cuts ties")]
fn tables_are_for_people() {
    let files = Files::new();
    let file = files.logits("logits.safetensors", &[3, 4], &ROWS);
    let table = prints("filter", &file, "--top-k 2");
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "logits: 3 rows of 4 logits, f32");
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["0", "2", "ok", "1", "0.5000", "3", "0.5000"]);
    assert_eq!(lines[4].split_whitespace().collect::<Vec<_>>(), ["2", "0", "empty"]);
    let table = prints("sample", &file, "--temperature 0");
    let lines: Vec<_> = table.lines().collect();
    let drawn = ["0", "1", "ok", "1", "0", "0.0000", "-0.6931", "1", "1.0000"];
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), drawn);
    assert_eq!(lines[4].split_whitespace().collect::<Vec<_>>(), ["2", "0", "empty", "-", "-", "-", "-"]);
    // The readme's first command: what a row keeps, its token, and the first five kept.
    let table = prints("sample", &fixture(), "--top-k 50 --top-p 0.9 --seed 7");
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 3 * 2 + 5 + 4 + 8);
    let fields: Vec<_> = lines[3].split_whitespace().collect();
    assert_eq!((fields[1], fields[7], fields[8], fields.len()), ("19", "691", "0.3401", 7 + 2 * 5 + 1));
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilteredLine {
    tensor: String,
    row: usize,
    status: Vec<String>,
    kept: usize,
    ids: Vec<u32>,
    logits: Vec<f32>,
    logprobs: Vec<f32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SampledLine {
    tensor: String,
    row: usize,
    status: Vec<String>,
    token: Option<u32>,
    logprob: f32,
    raw_logprob: f32,
    rank: u32,
    kept: u32,
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The oracle's answers for every row of the fixture.
fn oracle<T>(answer: impl Fn(&OracleBackend, &Logits<'_>) -> Vec<T>) -> Vec<(String, usize, T)> {
    let mut answers = Vec::new();
    for model in qrita_testkit::fixtures::small() {
        let logits = Logits::new(&model.logits, model.vocab).unwrap();
        let rows = answer(&OracleBackend, &logits).into_iter().enumerate();
        answers.extend(rows.map(|(row, answer)| (model.model.clone(), row, answer)));
    }
    answers.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    answers
}

#[test]
fn filter_has_the_oracles_bits_on_real_logits() {
    let filters = [
        ("--top-k 50 --top-p 0.9", Params::default().top_k(50).top_p(0.9)),
        ("--top-p 0.95 --temperature 0.7", Params::default().top_p(0.95).temperature(0.7)),
        ("--min-p 0.02 --top-p 0.8 --order joint", Params::default().min_p(0.02).top_p(0.8).order(qrita::Order::Joint)),
        ("--top-k 50 --ties keep-all --valid-vocab 40000", {
            let adjustments = qrita::Adjustments { valid_vocab: Some(40_000), ..Default::default() };
            Params::default().top_k(50).ties(qrita::Ties::KeepAll).adjustments(adjustments)
        }),
    ];
    for (flags, params) in filters {
        let expected =
            oracle(|oracle, logits| oracle.filter(logits, &params, &Plan::default(), &mut oracle.workspace()).unwrap());
        let printed = prints("filter", &fixture(), &format!("{flags} --format jsonl"));
        let lines: Vec<FilteredLine> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), expected.len());
        for (line, (model, row, Filtered { status, ids, logits, logprobs })) in lines.iter().zip(expected) {
            assert_eq!((&line.tensor, line.row), (&model, row));
            assert_eq!(line.status, status.names().collect::<Vec<_>>());
            assert_eq!((line.kept, &line.ids), (ids.len(), &ids), "{flags}, {model} row {row}");
            assert_eq!(bits(&line.logits), bits(&logits), "{flags}, {model} row {row}");
            assert_eq!(bits(&line.logprobs), bits(&logprobs), "{flags}, {model} row {row}");
        }
    }
}

#[test]
fn sample_has_the_oracles_bits_on_real_logits() {
    let params = Params::default().top_k(50).top_p(0.9).temperature(1.3).seed(u64::MAX).position(12);
    let expected =
        oracle(|oracle, logits| oracle.sample(logits, &params, &Plan::default(), &mut oracle.workspace()).unwrap());
    let flags = "--top-k 50 --top-p 0.9 --temperature 1.3 --seed 18446744073709551615 --position 12 --format jsonl";
    // One thread or many, and every plan: the same bytes.
    let printed = prints("sample", &fixture(), flags);
    let mut others =
        vec!["--threads 1", "--force-fallback --no-autotune --search sort", "--truncation off --search binary"];
    if cfg!(all(feature = "truncation", feature = "quaternary")) {
        others.push("--backend cpu --truncation paper --search quaternary");
    }
    for more in others {
        assert_eq!(prints("sample", &fixture(), &format!("{flags} {more}")), printed, "{more}");
    }
    let lines: Vec<SampledLine> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), expected.len());
    for (line, (model, row, Sampled { status, kept, token, logprob, raw_logprob, rank })) in lines.iter().zip(expected)
    {
        assert_eq!((&line.tensor, line.row), (&model, row));
        assert_eq!(line.status, status.names().collect::<Vec<_>>());
        assert_eq!((line.token, line.rank, line.kept), (token, rank, kept), "{model} row {row}");
        assert_eq!(bits(&[line.logprob, line.raw_logprob]), bits(&[logprob, raw_logprob]), "{model} row {row}");
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrawsLine {
    tensor: String,
    row: usize,
    status: Vec<String>,
    token: Vec<Option<u32>>,
    logprob: Vec<f32>,
    raw_logprob: Vec<f32>,
    rank: Vec<u32>,
    kept: u32,
    top_ids: Vec<u32>,
    top_logprobs: Vec<f32>,
}

#[test]
fn draws_and_first_candidates_have_the_oracles_bits_on_real_logits() {
    const DRAWS: usize = 5;
    const TOP: usize = 20;
    let params = Params::default().top_k(50).top_p(0.9).temperature(1.3).seed(9).position(3);
    let several = params.draws(DRAWS as u32);
    let drawn = oracle(|oracle, logits| {
        let drawn = oracle.sample(logits, &several, &Plan::default(), &mut oracle.workspace()).unwrap();
        drawn.chunks(DRAWS).map(<[Sampled]>::to_vec).collect()
    });
    let top = oracle(|oracle, logits| {
        let (mut ids, mut logprobs) = (vec![0; logits.rows() * TOP], vec![0.0; logits.rows() * TOP]);
        let top = qrita::Top { n: TOP, ids: &mut ids, logprobs: &mut logprobs };
        let mut outputs = qrita::Outputs { top: Some(top), ..Default::default() };
        oracle.run((*logits).into(), &params, &Plan::default(), &mut outputs, &mut oracle.workspace()).unwrap();
        ids.chunks(TOP).map(<[u32]>::to_vec).zip(logprobs.chunks(TOP).map(bits)).collect()
    });
    let flags = "--top-k 50 --top-p 0.9 --temperature 1.3 --seed 9 --position 3 --format jsonl";
    let printed = prints("sample", &fixture(), &format!("{flags} --draws {DRAWS} --top {TOP}"));
    let lines: Vec<DrawsLine> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), drawn.len());
    for ((line, (model, row, drawn)), (_, _, top)) in lines.iter().zip(drawn).zip(top) {
        assert_eq!((&line.tensor, line.row), (&model, row));
        assert_eq!(line.status, drawn[0].status.names().collect::<Vec<_>>());
        assert_eq!(line.kept, drawn[0].kept, "{model} row {row}");
        let of = |number: fn(&Sampled) -> f32| bits(&drawn.iter().map(number).collect::<Vec<_>>());
        assert_eq!(line.token, drawn.iter().map(|draw| draw.token).collect::<Vec<_>>(), "{model} row {row}");
        assert_eq!(line.rank, drawn.iter().map(|draw| draw.rank).collect::<Vec<_>>(), "{model} row {row}");
        assert_eq!(bits(&line.logprob), of(|draw| draw.logprob), "{model} row {row}");
        assert_eq!(bits(&line.raw_logprob), of(|draw| draw.raw_logprob), "{model} row {row}");
        assert_eq!((&line.top_ids, bits(&line.top_logprobs)), (&top.0, top.1), "{model} row {row}");
    }
}

#[test]
fn each_row_has_the_parameters_of_its_line() {
    let files = Files::new();
    let row = [0.0f32, 1.0, 2.0, 3.0];
    let file = files.logits("logits.safetensors", &[3, 4], &[row, row, row].concat());
    let params = files.write("params.jsonl", "{\"top_k\": 1}\n{}\n{\"top_k\": 0, \"top_p\": 0.7}\n");
    let kept = |args: &str| -> Vec<usize> {
        let printed = prints("filter", &file, &format!("--params {} --format jsonl {args}", params.display()));
        printed
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["kept"].as_u64().unwrap() as usize)
            .collect()
    };
    // The largest of the four has 0.64 of the mass, the two largest have 0.88.
    assert_eq!(kept("--top-k 3"), [1, 3, 2]);
    assert_eq!(kept("--top-k 2 --top-p 0.5"), [1, 1, 2]);
    // Lines belong to the rows of the tensor, also when some are left out.
    assert_eq!(kept("--top-k 3 --rows 1..3"), [3, 2]);
    assert_eq!(kept("--top-k 3 --rows 2"), [1, 3]);
    let tokens = |lines: &str| {
        let params = files.write("draws.jsonl", lines);
        prints("sample", &file, &format!("--params {} --seed 3 --format jsonl", params.display()))
    };
    let by_position = tokens("{\"position\": 0}\n{\"position\": 1}\n{\"position\": 2}\n");
    let by_flags: String = (0..3)
        .map(|row| {
            prints("sample", &file, &format!("--rows {row}..{} --seed 3 --position {row} --format jsonl", row + 1))
        })
        .collect();
    assert_eq!(by_position, by_flags);
}

#[test]
fn chunks_do_not_show() {
    // More rows than are read at a time.
    let files = Files::new();
    let values: Vec<f32> = (0..150 * 7).map(|i| ((i * 37) % 101) as f32 / 9.0).collect();
    let file = files.write("logits.npy", npy(&[150, 7], &values, npyz::Order::C));
    let all = prints("filter", &file, "--top-p 0.8 --format jsonl");
    assert_eq!(all.lines().count(), 150);
    let single: String = (0..150)
        .step_by(10)
        .map(|row| prints("filter", &file, &format!("--top-p 0.8 --format jsonl --rows {row}..{}", row + 10)))
        .collect();
    assert_eq!(all, single);
    assert_eq!(prints("filter", &file, "--top-p 0.8 --format jsonl --rows 1000"), all);
}

/// The i32 of a tensor.
fn i32s(file: &SafeTensors<'_>, name: &str) -> (Vec<usize>, Vec<i32>) {
    let view = file.tensor(name).unwrap();
    assert_eq!(view.dtype(), Dtype::I32);
    let values = view.data().chunks_exact(4).map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap())).collect();
    (view.shape().to_vec(), values)
}

/// The f32 of a tensor.
fn f32s(file: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let view = file.tensor(name).unwrap();
    assert_eq!(view.dtype(), Dtype::F32);
    view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn candidates_as_arrays() {
    let files = Files::new();
    let file = files.logits("logits.safetensors", &[3, 4], &ROWS);
    let ln_half = 0.5f32.ln();

    let out = files.path("kept.safetensors");
    assert_eq!(prints("filter", &file, &format!("--top-k 3 --rows 3 --output {}", out.display())), "");
    let bytes = std::fs::read(&out).unwrap();
    let kept = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(i32s(&kept, "kept"), (vec![3], vec![3, 3, 0]));
    assert_eq!(i32s(&kept, "status"), (vec![3], vec![0, 3, 4]));
    assert_eq!(i32s(&kept, "ids"), (vec![3, 3], vec![1, 3, 2, 0, 2, 1, -1, -1, -1]));
    assert_eq!(f32s(&kept, "logits"), [3.0, 3.0, 2.0, INF, INF, 1.0, -INF, -INF, -INF]);
    let logprobs = f32s(&kept, "logprobs");
    assert_eq!(&logprobs[3..], [ln_half, ln_half, -INF, -INF, -INF, -INF]);

    let out = files.path("kept.npy");
    prints("filter", &file, &format!("--top-k 2 --output {}", out.display()));
    let bytes = std::fs::read(&out).unwrap();
    let array = npyz::NpyFile::new(&bytes[..]).unwrap();
    assert_eq!(array.shape(), [4]);
    assert_eq!(array.dtype().descr(), "[('row', '<i8'), ('id', '<i4'), ('logit', '<f4'), ('logprob', '<f4'), ]");
    let record = |row: u64, id: u32, logit: f32, logprob: f32| {
        [&row.to_le_bytes()[..], &id.to_le_bytes(), &logit.to_le_bytes(), &logprob.to_le_bytes()].concat()
    };
    let records = [
        record(0, 1, 3.0, ln_half),
        record(0, 3, 3.0, ln_half),
        record(1, 0, INF, ln_half),
        record(1, 2, INF, ln_half),
    ];
    assert!(bytes.ends_with(&records.concat()));
    assert_eq!(bytes.len() % 64, 80 % 64);
    // Only the outputs are left: no temporary file.
    assert_eq!(files.names(), ["kept.npy", "kept.safetensors", "logits.safetensors"]);
}

#[test]
fn tokens_as_arrays() {
    let files = Files::new();
    let (a, b) = (f32_bytes(&[1.0, 1.0, 0.0]), f32_bytes(&[-INF, -INF]));
    let file = files.write("two", safetensors(&[("a", Dtype::F32, &[1, 3], &a), ("b", Dtype::F32, &[2], &b)]));
    let out = files.path("tokens.safetensors");
    assert_eq!(prints("sample", &file, &format!("--temperature 0 --output {}", out.display())), "");
    let bytes = std::fs::read(&out).unwrap();
    let tokens = SafeTensors::deserialize(&bytes).unwrap();
    for (name, a, b) in [("status", 0, 4), ("token", 0, -1), ("rank", 0, -1), ("kept", 1, 0)] {
        assert_eq!(i32s(&tokens, &format!("a.{name}")), (vec![1], vec![a]), "{name}");
        assert_eq!(i32s(&tokens, &format!("b.{name}")), (vec![1], vec![b]), "{name}");
    }
    assert_eq!((f32s(&tokens, "a.logprob"), f32s(&tokens, "b.logprob")), (vec![0.0], vec![-INF]));
    assert_eq!((f32s(&tokens, "a.raw_logprob"), f32s(&tokens, "b.raw_logprob")), (vec![0.5f32.ln()], vec![-INF]));

    let out = files.path("tokens.npy");
    prints("sample", &file, &format!("--tensor a --temperature 0 --output {}", out.display()));
    let bytes = std::fs::read(&out).unwrap();
    let array = npyz::NpyFile::new(&bytes[..]).unwrap();
    assert_eq!(array.shape(), [1]);
    let values: Vec<u8> = [
        &0u64.to_le_bytes()[..],
        &0i32.to_le_bytes(),
        &0i32.to_le_bytes(),
        &0f32.to_le_bytes(),
        &0.5f32.ln().to_le_bytes(),
        &0i32.to_le_bytes(),
        &1i32.to_le_bytes(),
    ]
    .concat();
    assert!(bytes.ends_with(&values));
}

#[test]
fn several_draws_and_first_candidates_as_arrays() {
    let files = Files::new();
    let file = files.logits("logits.safetensors", &[3, 4], &ROWS);
    // The answers of `the_form_of_several_draws_and_first_candidates`.
    let (half, first, third, last) = (0.5f32.ln(), -0.882_802_84, -1.882_802_8, -3.882_802_7);
    let token = [3, 1, 3, 2, 0, 2, -1, -1, -1];
    let rank = [1, 0, 1, 1, 0, 1, -1, -1, -1];
    let logprob = [half, half, half, half, half, half, -INF, -INF, -INF];
    let raw_logprob = [first, first, first, half, half, half, -INF, -INF, -INF];
    let top_ids = [1, 3, 2, 0, 0, 2, 1, -1, -1, -1, -1, -1];
    let top_logprobs = [first, first, third, last, half, half, -INF, -INF, -INF, -INF, -INF, -INF];

    let out = files.path("drawn.safetensors");
    prints("sample", &file, &format!("--top-k 2 --draws 3 --top 4 --output {}", out.display()));
    let bytes = std::fs::read(&out).unwrap();
    let drawn = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(drawn.len(), 8);
    assert_eq!(i32s(&drawn, "status"), (vec![3], vec![0, 3, 4]));
    assert_eq!(i32s(&drawn, "kept"), (vec![3], vec![2, 2, 0]));
    assert_eq!(i32s(&drawn, "token"), (vec![3, 3], token.to_vec()));
    assert_eq!(i32s(&drawn, "rank"), (vec![3, 3], rank.to_vec()));
    assert_eq!(i32s(&drawn, "top_ids"), (vec![3, 4], top_ids.to_vec()));
    assert_eq!((f32s(&drawn, "logprob"), f32s(&drawn, "raw_logprob")), (logprob.to_vec(), raw_logprob.to_vec()));
    assert_eq!(drawn.tensor("raw_logprob").unwrap().shape(), [3, 3]);
    assert_eq!(f32s(&drawn, "top_logprobs"), top_logprobs);

    let out = files.path("drawn.npy");
    prints("sample", &file, &format!("--top-k 2 --draws 3 --top 4 --output {}", out.display()));
    let bytes = std::fs::read(&out).unwrap();
    let array = npyz::NpyFile::new(&bytes[..]).unwrap();
    assert_eq!(array.shape(), [3]);
    assert_eq!(
        array.dtype().descr(),
        "[('row', '<i8'), ('status', '<i4'), ('token', '<i4', (3,)), ('logprob', '<f4', (3,)), \
         ('raw_logprob', '<f4', (3,)), ('rank', '<i4', (3,)), ('kept', '<i4'), ('top_ids', '<i4', (4,)), \
         ('top_logprobs', '<f4', (4,)), ]"
    );
    let i32_bytes = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let record = |row: usize, status: i32, kept: i32| {
        let (draws, top) = (3 * row..3 * row + 3, 4 * row..4 * row + 4);
        [
            (row as u64).to_le_bytes().to_vec(),
            i32_bytes(&[status]),
            i32_bytes(&token[draws.clone()]),
            f32_bytes(&logprob[draws.clone()]),
            f32_bytes(&raw_logprob[draws.clone()]),
            i32_bytes(&rank[draws]),
            i32_bytes(&[kept]),
            i32_bytes(&top_ids[top.clone()]),
            f32_bytes(&top_logprobs[top]),
        ]
        .concat()
    };
    let records = [record(0, 0, 2), record(1, 3, 2), record(2, 4, 0)].concat();
    assert!(bytes.ends_with(&records));
    // The data is aligned behind a header that is longer than most.
    assert_eq!((bytes.len() - records.len()) % 64, 0);

    // So is one of six digits and four.
    prints("sample", &file, &format!("--draws 100000 --top 1024 --output {}", out.display()));
    let bytes = std::fs::read(&out).unwrap();
    assert_eq!(npyz::NpyFile::new(&bytes[..]).unwrap().shape(), [3]);
    assert_eq!((bytes.len() - 3 * (16 + 16 * 100_000 + 8 * 1024)) % 64, 0);
}

#[test]
fn text_goes_to_files_too() {
    let files = Files::new();
    let file = files.logits("logits.safetensors", &[3, 4], &ROWS);
    for (name, format) in [("kept.jsonl", "jsonl"), ("kept.txt", "table")] {
        let out = files.path(name);
        assert_eq!(prints("filter", &file, &format!("--top-k 2 --output {}", out.display())), "");
        let printed = prints("filter", &file, &format!("--top-k 2 --format {format}"));
        assert_eq!(std::fs::read_to_string(&out).unwrap(), printed);
    }
}

/// What a mask must be: the kept values as they were, bit for bit, and −∞.
fn assert_masked(before: &[u8], after: &[u8], size: usize, neg_infinity: &[u8], kept: &[u32]) {
    assert_eq!(before.len(), after.len());
    for (id, (before, after)) in before.chunks_exact(size).zip(after.chunks_exact(size)).enumerate() {
        let expected = if kept.contains(&(id as u32)) { before } else { neg_infinity };
        assert_eq!(after, expected, "id {id}");
    }
}

#[test]
fn masks_of_real_logits_read_back() {
    let files = Files::new();
    let out = files.path("masked.safetensors");
    prints("filter", &fixture(), &format!("--top-k 50 --top-p 0.9 --mask --output {}", out.display()));
    let (before, after) = (std::fs::read(fixture()).unwrap(), std::fs::read(&out).unwrap());
    let (before, after) = (SafeTensors::deserialize(&before).unwrap(), SafeTensors::deserialize(&after).unwrap());
    assert_eq!(before.len(), after.len());
    let printed = prints("filter", &fixture(), "--top-k 50 --top-p 0.9 --format jsonl");
    for line in printed.lines() {
        let line: FilteredLine = serde_json::from_str(line).unwrap();
        let (before, after) = (before.tensor(&line.tensor).unwrap(), after.tensor(&line.tensor).unwrap());
        assert_eq!((before.dtype(), before.shape()), (after.dtype(), after.shape()));
        let row = 2 * before.shape()[1];
        let range = line.row * row..(line.row + 1) * row;
        let neg_infinity = bf16::NEG_INFINITY.to_le_bytes();
        assert_masked(&before.data()[range.clone()], &after.data()[range], 2, &neg_infinity, &line.ids);
    }
    // The mask alone says what was kept.
    assert_eq!(prints("filter", &out, "--format jsonl"), printed);
}

#[test]
#[cfg_attr(not(feature = "duplicates"), ignore = "the answers are those of a build that cuts ties")]
fn masks_keep_dtype_and_layout() {
    let files = Files::new();
    let values = [1.0f32, -0.0, 5.0, 2.0, 2.0, 7.0, 0.5, 7.0];

    let file = files.write("logits.npy", npy(&[2, 4], &values, npyz::Order::C));
    let out = files.path("masked.npy");
    prints("filter", &file, &format!("--top-k 2 --mask --output {}", out.display()));
    let bytes = std::fs::read(&out).unwrap();
    let array = npyz::NpyFile::new(&bytes[..]).unwrap();
    assert_eq!(array.shape(), [2, 4]);
    assert_eq!(array.into_vec::<f32>().unwrap(), [-INF, -INF, 5.0, 2.0, -INF, 7.0, -INF, 7.0]);

    // f16, two positions: of each row the last is masked and written.
    let halves: Vec<u8> = values.iter().flat_map(|&y| f16::from_f32(y).to_le_bytes()).collect();
    let file = files.write("half", safetensors(&[("x", Dtype::F16, &[1, 2, 4], &halves)]));
    prints("filter", &file, &format!("--top-k 1 --mask --format npy --output {}", out.display()));
    let bytes = std::fs::read(&out).unwrap();
    assert_eq!(npyz::NpyFile::new(&bytes[..]).unwrap().dtype().descr(), "'<f2'");
    let contents = qrita_cli::read(&bytes).unwrap();
    let masked = contents.select(&[]).unwrap()[0];
    assert_eq!((masked.rows(), masked.vocab()), (1, 4));
    assert_masked(&halves[8..], masked.read(0..1).bytes(), 2, &f16::NEG_INFINITY.to_le_bytes(), &[1]);

    // A row without a dimension of rows stays one; an input may be replaced by its mask.
    let file = files.write("one", safetensors(&[("x", Dtype::F16, &[8], &halves)]));
    prints("filter", &file, &format!("--top-k 3 --mask --format safetensors --output {}", file.display()));
    let bytes = std::fs::read(&file).unwrap();
    let masked = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(masked.tensor("x").unwrap().shape(), [8]);
    assert_masked(&halves, masked.tensor("x").unwrap().data(), 2, &f16::NEG_INFINITY.to_le_bytes(), &[5, 7, 2]);
}

#[test]
fn duplicate_handling_off_keeps_all_ties() {
    let files = Files::new();
    let file = files.logits("logits.safetensors", &[4], &[2.0, 1.0, 1.0, 1.0]);
    let kept = |args: &str| prints("filter", &file, &format!("--top-k 2 --format jsonl {args}")).contains("\"kept\":4");
    assert_eq!(kept(""), !cfg!(feature = "duplicates"));
    assert!(kept("--no-duplicates"));
    assert!(kept("--ties keep-all"));
}

#[test]
fn a_file_without_rows_is_no_error() {
    let files = Files::new();
    let file = files.logits("none.safetensors", &[0, 4], &[]);
    assert_eq!(prints("filter", &file, "--format jsonl"), "");
    assert_eq!(prints("sample", &file, "--format jsonl"), "");
    let out = files.path("kept.safetensors");
    prints("filter", &file, &format!("--output {}", out.display()));
    let bytes = std::fs::read(&out).unwrap();
    assert_eq!(i32s(&SafeTensors::deserialize(&bytes).unwrap(), "ids"), (vec![0, 0], vec![]));
    assert!(prints("stats", &file, "").contains("0 rows of 4 logits"));
}

#[cfg(unix)]
#[test]
fn a_pipe_is_read_whole() {
    let bytes = std::fs::read(fixture()).unwrap();
    let args = ["sample", "/dev/stdin", "--top-k", "50", "--format", "jsonl"];
    let output = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("qrita"))
        .args(args)
        .write_stdin(bytes)
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), prints("sample", &fixture(), "--top-k 50 --format jsonl"));
}

#[test]
fn the_numbers_of_a_status_are_those_in_the_help() {
    // The help says what the numbers mean.
    assert_eq!((Status::NAN.bits(), Status::POS_INF.bits(), Status::EMPTY.bits()), (1, 2, 4));
}
