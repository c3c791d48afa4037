//! Errors, exit codes, help, and the subcommands that study logits and tables.
#![allow(missing_docs)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use common::{Files, f32_bytes, fails, fixture, npy, prints, raw_npy, run, safetensors};
use safetensors::tensor::Dtype;
use serde_json::Value;

#[test]
fn files_that_can_not_be_used() {
    let files = Files::new();
    let data = f32_bytes(&[1.0, 2.0, 3.0, 4.0]);
    let good = safetensors(&[("logits", Dtype::F32, &[2, 2], &data)]);
    let large = vec![0; (1 << 21) + 1].repeat(2);
    let cases: Vec<(Vec<u8>, i32, &str)> = vec![
        (vec![], 2, "the file is empty"),
        (b"some text that is no tensor".to_vec(), 2, "neither a safetensors nor an npy file"),
        (good[..good.len() - 3].to_vec(), 2, "cut short"),
        (good[..30].to_vec(), 2, "cut short"),
        (safetensors(&[("ids", Dtype::I64, &[2], &[0; 16])]), 2, "dtype is i64: convert it to f32, f16 or bf16"),
        (safetensors(&[("x", Dtype::F32, &[1, 1, 2, 2], &data)]), 2, "4 dimensions"),
        (safetensors(&[("x", Dtype::F16, &[(1 << 21) + 1], &large)]), 2, "vocab is 2097153"),
        (npy(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0], npyz::Order::Fortran), 2, "Fortran order"),
        (raw_npy("{'descr': '>f4', 'fortran_order': False, 'shape': (4,)}", &data), 2, "big-endian"),
        (raw_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (5,)}", &data), 2, "takes 20 bytes"),
        // A name with a line feed and an escape does not break the line.
        (safetensors(&[("a\n\u{1b}[31m", Dtype::I64, &[2], &[0; 16])]), 2, "a\\n\\u{1b}[31m"),
    ];
    for (bytes, code, expected) in cases {
        let file = files.write("file", bytes);
        let file = file.to_str().unwrap();
        for subcommand in ["filter", "sample", "stats"] {
            let error = fails(code, &[subcommand, file]);
            assert!(error.contains(expected) && error.contains(file), "{error}");
        }
    }
    let missing = files.path("missing.npy");
    assert!(fails(1, &["filter", missing.to_str().unwrap()]).contains("cannot read"));
    assert!(fails(1, &["filter", files.path("").to_str().unwrap()]).contains("directory"));
}

#[test]
fn arguments_that_can_not_be_used() {
    let files = Files::new();
    let file = files.logits("logits.safetensors", &[3, 4], &[0.0; 12]);
    let file = file.to_str().unwrap();
    let cases: &[(&str, &str)] = &[
        ("--temperature NaN", "temperature is NaN"),
        ("--temperature -1", "temperature is -1 for all rows: it must be finite and at least 0"),
        ("--temperature inf", "temperature is inf"),
        ("--top-p NaN", "top_p is NaN"),
        ("--top-p -0.1", "top_p is -0.1"),
        ("--min-p 2", "min_p is 2"),
        ("--top-k -1", "invalid value '-1' for '--top-k <K>'"),
        ("--top-k 4294967296", "invalid value"),
        ("--valid-vocab 5", "valid_vocab is 5: it must be at most the vocab"),
        ("--tensor x", "there is no tensor `x`: the file has `logits` f32 [3, 4]"),
        ("--rows 2..4", "--rows 2..4 is outside tensor `logits`, which has 3 rows"),
        ("--rows 2..2", "the range holds no row"),
        ("--rows two", "write a number of rows, or A..B"),
        ("--backend hip", "the hip backend is not part of this build"),
        ("--backend tpu", "there is no backend `tpu`"),
        ("--search linear", "quaternary, binary, sort, select"),
        ("--format npy", "add --output FILE"),
        ("--format safetensors", "add --output FILE"),
        ("--output kept.bin", "does not tell the format"),
        ("--mask", "--output <FILE>"),
        ("--mask --output kept.jsonl", "--mask writes logits"),
        ("--nonsense", "unexpected argument '--nonsense'"),
    ];
    for &(args, expected) in cases {
        let all: Vec<&str> = ["filter", file].into_iter().chain(args.split(' ')).collect();
        let error = fails(2, &all);
        assert!(error.contains(expected), "{args}: {error}");
    }
    assert!(fails(2, &["filter"]).contains("<FILE>"));
    assert!(fails(2, &["nonsense"]).contains("unrecognized subcommand 'nonsense'"));
    assert!(fails(2, &[] as &[&str]).contains("requires a subcommand"));
    assert!(fails(2, &["stats", file, "--top-p", "NaN"]).contains("top_p is NaN"));
    assert!(fails(2, &["sample", file, "--seed", "-1"]).contains("--seed"));
    for (flag, value, range) in [
        ("--draws", "0", "1..=1048576"),
        ("--draws", "-1", "1..=1048576"),
        ("--draws", "1048577", "1..=1048576"),
        ("--top", "-1", "0..=1024"),
        ("--top", "1025", "0..=1024"),
    ] {
        let error = fails(2, &["sample", file, flag, value]);
        assert!(error.contains(&format!("'{flag} <N>': {value} is not in {range}")), "{error}");
    }
}

#[test]
fn parameter_files_that_can_not_be_used() {
    let files = Files::new();
    let file = files.logits("logits.safetensors", &[3, 4], &[0.0; 12]);
    let params = files.path("params.jsonl");
    let (file, params) = (file.to_str().unwrap(), params.to_str().unwrap());
    let cases = [
        ("{}\n{\"topk\": 3}\n{}\n", "line 2: unknown field `topk`"),
        ("{}\n{}\n{\"temperature\": -1}\n", "line 3: temperature is -1: it must be finite and at least 0"),
        ("{}\n{}\n{\"top_p\": NaN}\n", "line 3: "),
        ("{}\n{}\n", "has 2 lines, but tensor `logits` needs 3"),
        ("", "has 0 lines, but tensor `logits` needs 3"),
        ("{}\n{}\n{}\n{}\n", "has 4 lines, but tensor `logits` has 3 rows"),
        ("{}\n\n{}\n", "line 2: it is empty"),
    ];
    for (text, expected) in cases {
        files.write("params.jsonl", text);
        let error = fails(2, &["sample", file, "--params", params]);
        assert!(error.contains(expected) && error.contains(params), "{error}");
    }
    assert!(fails(1, &["sample", file, "--params", files.path("missing").to_str().unwrap()]).contains("cannot read"));
}

#[test]
fn outputs_that_can_not_be_written() {
    let files = Files::new();
    let file = files.logits("logits.safetensors", &[3, 4], &[0.0; 12]);
    let file = file.to_str().unwrap();
    let nowhere = files.path("no/such/folder/kept.npy");
    assert!(fails(1, &["filter", file, "--output", nowhere.to_str().unwrap()]).contains("cannot write"));
    let folder = files.path("folder.npy");
    std::fs::create_dir(&folder).unwrap();
    assert!(fails(1, &["filter", file, "--output", folder.to_str().unwrap()]).contains("not a file"));

    let fixture = fixture();
    let fixture = fixture.to_str().unwrap();
    let out = files.path("masked.npy");
    let out = out.to_str().unwrap();
    let error = fails(2, &["filter", fixture, "--top-k", "5", "--mask", "--output", out]);
    assert!(
        error.contains("`gemma3_270m`, `qwen25_coder_05b`, `smollm2_135m`") && error.contains("--tensor"),
        "{error}"
    );
    let error = fails(2, &["filter", fixture, "--tensor", "smollm2_135m", "--mask", "--output", out]);
    assert!(error.contains("npy has no bf16") && error.contains("safetensors"), "{error}");
    // An error leaves nothing behind.
    assert_eq!(files.names(), ["folder.npy", "logits.safetensors"]);
}

#[test]
fn help_is_whole_and_ends_well() {
    let mut all = vec![vec![]];
    for subcommand in ["filter", "sample", "stats", "ablate", "tables", "info"] {
        all.push(vec![subcommand]);
    }
    if cfg!(feature = "cuda") {
        all.push(vec!["tune"]);
    }
    for subcommand in ["generate", "fit", "show"] {
        all.push(vec!["tables", subcommand]);
    }
    for mut args in all {
        args.push("--help");
        let output = run(&args);
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}");
        assert!(help.contains("Usage: qrita"), "{args:?}");
        match &args[..] {
            ["--help"] => assert!(help.contains("Exit codes:"), "{help}"),
            ["tables", "--help"] => assert!(help.contains("fit"), "{help}"),
            _ => assert!(help.contains("Example"), "{args:?}: {help}"),
        }
    }
    let version = String::from_utf8(run(["--version"]).stdout).unwrap();
    assert_eq!(version, format!("qrita {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    // Every token of every row: far more than a pipe holds.
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("qrita"))
        .args(["filter", fixture().to_str().unwrap(), "--tensor", "smollm2_135m", "--format", "jsonl"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"row\":0,\"status\":[],\"kept\":49152,"));
    drop(out);
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(0), ""));
}

#[test]
fn info_names_every_backend() {
    let output = run(["info"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.starts_with(&format!("qrita {}\nbackend cpu: ", env!("CARGO_PKG_VERSION"))), "{text}");
    assert!(text.contains("backend hip: none (not part of this build)\n"), "{text}");
    let auto = if cuda().is_ok() { "cuda" } else { "cpu" };
    assert!(text.contains(&format!("chosen by --backend auto: {auto}, ")), "{text}");
    let text = String::from_utf8(run(["info", "--backend", "cpu"]).stdout).unwrap();
    assert!(text.contains("chosen by --backend cpu: cpu, "), "{text}");
}

/// What `qrita info` says of CUDA: the device, or why there is none.
fn cuda() -> Result<String, String> {
    let text = String::from_utf8(run(["info"]).stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("backend cuda: ")).unwrap().to_owned();
    match line.strip_prefix("none (").and_then(|why| why.strip_suffix(')')) {
        Some(why) => Err(why.to_owned()),
        None => Ok(line),
    }
}

#[test]
fn cuda_answers_as_the_cpu_or_says_why_not() {
    let (file, cuda) = (fixture(), cuda());
    let path = file.to_str().unwrap();
    let args = ["filter", path, "--top-k", "5", "--backend", "cuda"];
    if !cfg!(feature = "cuda") {
        assert_eq!(cuda, Err("not part of this build".to_owned()));
        let error = fails(2, &args);
        assert!(error.contains("the cuda backend is not part of this build: choose auto or cpu"), "{error}");
        return;
    }
    match cuda {
        Ok(_) => {
            for subcommand in ["filter", "sample"] {
                let [cpu, cuda] = ["cpu", "cuda --device 0"].map(|backend| {
                    prints(subcommand, &file, &format!("--top-k 50 --top-p 0.9 --format jsonl --backend {backend}"))
                });
                assert_eq!(cpu, cuda);
            }
        }
        Err(why) => assert_eq!(fails(1, &args), format!("cuda: {why}")),
    }
    assert!(fails(1, &[&args[..], &["--device", "4096"]].concat()).starts_with("cuda: "));
    assert!(fails(2, &["filter", path, "--device", "-1"]).contains("--device"));
}

#[test]
#[cfg(feature = "cuda")]
fn shapes_are_tuned_and_used_or_it_says_why_not() {
    let files = Files::new();
    let path = files.path("tuning.json");
    let tuning = path.to_str().unwrap();
    let fixture = fixture();
    let file = fixture.to_str().unwrap();
    let args = ["tune", "--dtype", "bf16", "--vocab", "49152", "--rows", "8", "--output", tuning];
    match cuda() {
        Ok(device) => {
            let output = run(args);
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(text.starts_with(&device) && text.contains("4 classes"), "{text}");
            let args = "--tensor smollm2_135m --top-k 50 --top-p 0.9 --format jsonl --backend";
            let [cpu, cuda] = [format!("{args} cpu"), format!("{args} cuda --tuning {tuning}")]
                .map(|args| prints("sample", &fixture, &args));
            assert_eq!(cpu, cuda);
            // Another device's is refused, also where the backend is chosen for the caller.
            let other =
                std::fs::read_to_string(&path).unwrap().replace("\"multiprocessors\": ", "\"multiprocessors\": 9");
            std::fs::write(&path, other).unwrap();
            assert!(fails(2, &["filter", file, "--tuning", tuning]).contains("the tuning is of"));
        }
        Err(why) => {
            assert_eq!(fails(1, &args), format!("cuda: {why}"));
            assert!(files.names().is_empty(), "nothing is left of a file that could not be made");
            // It is read before a device is looked for, and is nothing to the CPU.
            let none = "{\"format\":\"qrita-tuning\",\"version\":1,\"device\":{\"name\":\"x\",\"capability\":[9,0],\
                        \"multiprocessors\":1},\"entries\":[]}";
            let none = files.write("none.json", none);
            let args = format!("--top-k 5 --format jsonl --tuning {}", none.display());
            assert_eq!(prints("filter", &fixture, &args), prints("filter", &fixture, "--top-k 5 --format jsonl"));
        }
    }
    assert!(fails(1, &["tune", "--device", "4096"]).starts_with("cuda: "));
    for (flags, expected) in [
        (["--dtype", "f64"], "f32, f16, bf16"),
        (["--vocab", "0"], "0 is not in 1..=2097152"),
        (["--vocab", "2097153"], "2097153 is not in"),
        (["--rows", "1,0"], "0 is not in 1..=65536"),
        (["--rows", "many"], "--rows"),
        (["--device", "-1"], "--device"),
    ] {
        let error = fails(2, &["tune", flags[0], flags[1]]);
        assert!(error.contains(expected), "{flags:?}: {error}");
    }

    let missing = files.path("missing.json");
    assert!(fails(1, &["filter", file, "--tuning", missing.to_str().unwrap()]).contains("cannot read the tuning"));
    for (text, expected) in [
        ("{\"format\": \"qrita-delta-tables\", \"version\": 1}", "not a tuning"),
        ("{\"format\": \"qrita-tuning\", \"version\": 2}", "tuning of version 2, but this release reads version 1"),
        ("{\"format\": \"qrita-tuning\", \"version\": 1}", "corrupt tuning"),
    ] {
        let path = files.write("bad.json", text);
        let error = fails(2, &["sample", file, "--tuning", path.to_str().unwrap()]);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
#[cfg_attr(not(feature = "duplicates"), ignore = "the answers are those of a build that cuts ties")]
fn stats_of_real_logits() {
    let printed = prints("stats", &fixture(), "--backend cpu --format jsonl");
    let stats: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = stats.iter().map(|stats| stats["tensor"].as_str().unwrap()).collect();
    assert_eq!(names, ["gemma3_270m", "qwen25_coder_05b", "smollm2_135m"]);
    // What is known of the fixture, from the file that comes with it.
    let known: Value = serde_json::from_slice(&std::fs::read(fixture().with_extension("json")).unwrap()).unwrap();
    for stats in &stats {
        let known = &known[stats["tensor"].as_str().unwrap()];
        let rows = known["rows"].as_array().unwrap();
        assert_eq!(stats["rows"], rows.len());
        assert_eq!((&stats["vocab"], stats["dtype"].as_str()), (&known["V"], Some("bf16")));
        let column = |key: &str| rows.iter().map(|row| row[key].as_f64().unwrap()).collect::<Vec<_>>();
        for (field, key) in [("mean", "mean"), ("sigma", "std"), ("max", "max")] {
            let values = column(key);
            let (min, max) =
                values.iter().fold((f64::MAX, f64::MIN), |(min, max), &value| (min.min(value), max.max(value)));
            assert!((stats[field]["min"].as_f64().unwrap() - min).abs() < 1e-4, "{field}: {stats}");
            assert!((stats[field]["max"].as_f64().unwrap() - max).abs() < 1e-4, "{field}: {stats}");
        }
        assert_eq!((&stats["nan"], &stats["pos_inf"], &stats["neg_inf"]), (&0.into(), &0.into(), &0.into()));

        let filters = stats["filters"].as_array().unwrap();
        let titles: Vec<_> = filters.iter().map(|filter| filter["filter"].as_str().unwrap()).collect();
        assert_eq!(titles, ["top-k 50", "top-p 0.9", "top-k 50, top-p 0.9"]);
        assert_eq!(stats["backend"], "cpu");
        // Of what top-k leaves the mass is exact: there is nothing to certify.
        let certified: Vec<_> = filters.iter().map(|filter| filter["call"]["certified"].as_f64()).collect();
        assert_eq!(certified, [None, cfg!(feature = "truncation").then_some(1.0), None]);
        assert_eq!((&filters[0]["kept"]["min"], &filters[0]["kept"]["max"]), (&50.into(), &50.into()));
        let mut kept = column("n90");
        kept.sort_by(f64::total_cmp);
        assert_eq!(filters[1]["kept"]["max"].as_f64(), kept.last().copied());
        assert_eq!(filters[1]["kept"]["min"].as_f64(), kept.first().copied());
        for filter in filters {
            let truncations = filter["truncations"].as_array().unwrap();
            // On the CPU the call is the default plan's stages.
            if let Some(adaptive) = truncations.last() {
                let call = &filter["call"];
                assert_eq!((&call["hit_rate"], &call["n_t"]), (&adaptive["hit_rate"], &adaptive["n_t"]));
            }
            let names: Vec<_> = truncations.iter().map(|t| t["truncation"].as_str().unwrap()).collect();
            let all = ["paper", "gaussian", "quantile", "adaptive"];
            assert_eq!(names, if cfg!(feature = "truncation") { &all[..] } else { &[] });
            for truncation in truncations {
                let (hit, gathered) = (truncation["hit_rate"].as_f64().unwrap(), truncation["n_t"].as_f64().unwrap());
                assert!((0.0..=1.0).contains(&hit) && gathered > 0.0, "{truncation}");
                // A set that holds the answer of every row has as many candidates as are kept.
                if hit == 1.0 && filter["filter"] == "top-k 50" {
                    assert!(gathered >= 50.0, "{truncation}");
                }
            }
        }
    }
    let table = prints("stats", &fixture(), "--tensor smollm2_135m --top-p 1");
    assert!(table.starts_with("smollm2_135m: 8 rows of 49152 logits, bf16\n"), "{table}");
    assert!(table.contains("top-k 50: kept min 50, median 50") && !table.contains("top-p"), "{table}");
    assert!(table.contains(": hit rate ") && !table.contains("certified"), "{table}");
}

/// Every run that the build has, in all three forms, on rows made up and on those of a file.
#[test]
fn ablation_on_the_cpu() {
    let files = Files::new();
    let (json, csv) = (files.path("runs.json"), files.path("runs.csv"));
    let file = fixture();
    let of_file = ["--input", file.to_str().unwrap(), "--tensor", "smollm2_135m", "--rows", "9", "--top-p", "1"];
    let made_up = ["--kind", "plateaus", "--vocab", "3000", "--rows", "5", "--dtype", "f16", "--top-k", "300"];
    for (args, vocab, dtype, different) in [(&of_file[..], 49152, "bf16", 8), (&made_up[..], 3000, "f16", 5)] {
        let common = ["ablate", "--backend", "cpu", "--threads", "1", "--repeats", "1"];
        let outputs = ["--json", json.to_str().unwrap(), "--csv", csv.to_str().unwrap()];
        let output = run([&common[..], args, &outputs].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let table = String::from_utf8(output.stdout).unwrap();
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!((&report["vocab"], report["dtype"].as_str()), (&vocab.into(), Some(dtype)));
        assert_eq!(report["different"], different);
        let backend = &report["backends"][0];
        assert_eq!((&backend["backend"], report["backends"].as_array().unwrap().len()), (&"cpu".into(), 1));
        let runs = backend["runs"].as_array().unwrap();
        let names: String = runs.iter().map(|run| run["run"].as_str().unwrap()).collect();
        let has = [
            cfg!(feature = "truncation"),
            cfg!(feature = "quaternary"),
            cfg!(feature = "duplicates"),
            cfg!(feature = "autotune"),
        ];
        if has == [true; 4] {
            assert_eq!(names, "ABCDEFGHIJdefault");
            assert_eq!(runs[0]["times_a"], 1.0);
        }
        assert!(names.ends_with("default"));
        assert!(runs.iter().all(|run| run["us"].as_f64().unwrap() > 0.0 && run["copies"].as_f64().unwrap() > 0.0));
        let lines = std::fs::read_to_string(&csv).unwrap();
        assert_eq!(lines.lines().count(), 1 + runs.len());
        assert!(lines.starts_with("backend,rows,vocab,dtype,") && table.contains("the oracle keeps"), "{table}");
        assert!(runs.iter().all(|run| table.contains(run["off"].as_str().unwrap())), "{table}");
    }
    let error = fails(2, &["ablate", "--input", file.to_str().unwrap()]);
    assert!(error.contains("choose one with --tensor"), "{error}");
    assert!(fails(2, &["ablate", "--top-p", "-1"]).contains("top_p is -1"));
    assert!(fails(2, &["ablate", "--input", "x", "--vocab", "7"]).contains("--vocab"));
}

/// Values of the flags that this build has no code for.
#[test]
fn choices_that_are_not_compiled_in_are_refused() {
    let file = fixture();
    let file = file.to_str().unwrap();
    let tables = Files::new();
    let normal = tables.path("normal.json");
    assert!(run(["tables", "generate", "--output", normal.to_str().unwrap()]).status.success());
    let needs = |args: &[&str], compiled: bool, feature: &str| {
        let args = [&["filter", file, "--rows", "1", "--top-k", "5", "--tensor", "smollm2_135m"], args].concat();
        if compiled {
            assert!(run(args.clone()).status.success(), "{args:?}");
        } else {
            let error = fails(2, &args);
            assert!(error.contains(&format!("enable the Cargo feature `{feature}`")), "{args:?}: {error}");
        }
    };
    for truncation in ["paper", "gaussian", "quantile", "adaptive"] {
        needs(&["--truncation", truncation], cfg!(feature = "truncation"), "truncation");
    }
    needs(&["--tables", normal.to_str().unwrap()], cfg!(feature = "truncation"), "truncation");
    needs(&["--search", "quaternary"], cfg!(feature = "quaternary"), "quaternary");
    needs(&["--no-duplicates", "--no-autotune", "--truncation", "off", "--search", "binary"], true, "");
}

#[test]
fn tables_are_generated_fitted_shown_and_used() {
    let files = Files::new();
    let normal = files.path("normal.json");
    let fitted = files.path("fitted.json");
    let (normal, fitted) = (normal.to_str().unwrap(), fitted.to_str().unwrap());

    let output = run(["tables", "generate", "--output", normal]);
    assert!(output.status.success() && output.stdout.is_empty());
    let printed = run(["tables", "generate"]);
    assert_eq!(printed.stdout, std::fs::read(normal).unwrap());

    let output = run(["tables", "fit", fixture().to_str().unwrap(), "--output", fitted, "--coverage", "1"]);
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("fitted to 17 rows, 0 skipped"));

    let show = |args: &[&str]| {
        let output = run([&["tables", "show"], args].concat());
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(show(&[]).starts_with("the normal law\n"));
    assert_eq!(show(&[]), show(&[normal]));
    let shown = show(&[fitted]);
    assert!(
        shown.starts_with(
            "fitted to real_logits_small.safetensors: gemma3_270m, qwen25_coder_05b, smollm2_135m: 17 rows"
        )
    );

    // A table is a hint: it never changes an answer.
    let plain = prints("filter", &fixture(), "--top-k 50 --top-p 0.9 --format jsonl");
    let truncations = if cfg!(feature = "truncation") { &["paper", "gaussian"][..] } else { &[] };
    for truncation in truncations {
        let args = format!("--top-k 50 --top-p 0.9 --format jsonl --truncation {truncation} --tables {fitted}");
        assert_eq!(prints("filter", &fixture(), &args), plain, "{truncation}");
    }

    let file = fixture();
    let file = file.to_str().unwrap();
    assert!(fails(2, &["tables", "fit", file, "--output", fitted, "--coverage", "1.5"]).contains("coverage is 1.5"));
    assert!(fails(1, &["tables", "show", files.path("missing.json").to_str().unwrap()]).contains("cannot access"));
    assert!(fails(2, &["tables", "show", file]).contains("not a delta table"));
    let version_2 = files.write("future.json", "{\"format\": \"qrita-delta-tables\", \"version\": 99}");
    assert!(!fails(2, &["filter", file, "--tables", version_2.to_str().unwrap()]).is_empty());
}
