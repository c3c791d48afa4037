//! The sampler: every way to build one, and the oracle's answers from each.
#![cfg(feature = "cpu")]
#![allow(missing_docs)]

#[cfg(feature = "truncation")]
use qrita::DeltaTables;
use qrita::{
    Availability, Backend, BackendKind, BuildError, ChainOutputs, Chains, Error, Features, Input, Logits, LogitsMut,
    Outputs, Params, Plan, Sampler, Search, Side, Truncation, UnknownBackend, available,
};
use qrita_testkit::oracle::OracleBackend;

const VOCAB: usize = 1000;

/// Whether this build and this machine have CUDA: the tests hold with and without.
fn cuda() -> Availability {
    available().into_iter().find(|availability| availability.backend == "cuda").unwrap()
}

fn data() -> Vec<f32> {
    // Bumps of several heights, with many ties.
    (0..4 * VOCAB).map(|i| ((i * 7919) % 331) as f32 / 40.0 + ((i / 97) % 5) as f32).collect()
}

#[test]
fn every_sampler_answers_as_the_oracle() {
    let data = data();
    let logits = Logits::new(&data, VOCAB).unwrap();
    let params = Params::default().top_k(&[0, 1, 50, 7]).top_p(&[0.5, 1.0, 0.9, 0.0]).seed(&[1, 2, 3, 4]);
    let plan = Plan::default();
    let kept = OracleBackend.filter(&logits, &params, &plan, &mut OracleBackend.workspace()).unwrap();
    let tokens = OracleBackend.sample(&logits, &params, &plan, &mut OracleBackend.workspace()).unwrap();
    let cpu = || Sampler::builder().backend(BackendKind::Cpu);
    // One request: three of the rows draft, all verify.
    let draft = Side {
        logits: Logits::new(&data[VOCAB / 2..VOCAB / 2 + 3 * VOCAB], VOCAB).unwrap(),
        params: Params::default().top_k(50),
    };
    let chains = Chains { offsets: &[0, 3], tokens: &[2, 800, 40], draft, target: Side { logits, params } };
    let mut walked = ([7], [7; 4]);
    let mut outputs =
        ChainOutputs { accepted: Some(&mut walked.0), tokens: Some(&mut walked.1), ..ChainOutputs::default() };
    OracleBackend.verify(&chains, &plan, &mut outputs, &mut OracleBackend.workspace()).unwrap();
    let mut samplers = vec![
        Sampler::new(BackendKind::Auto).unwrap(),
        Sampler::new(BackendKind::Cpu).unwrap(),
        cpu().threads(1).build().unwrap(),
        cpu().threads(3).plan(Plan::paper()).build().unwrap(),
        Sampler::with_backend(OracleBackend),
    ];
    if cuda().is_usable() {
        let cuda = || Sampler::builder().backend(BackendKind::Cuda);
        samplers.push(cuda().build().unwrap());
        samplers.push(cuda().threads(3).plan(Plan::paper()).build().unwrap());
        #[cfg(feature = "truncation")]
        samplers.push(cuda().plan(Plan::paper()).tables(DeltaTables::normal()).build().unwrap());
    }
    #[cfg(feature = "truncation")]
    samplers.push(cpu().plan(Plan::paper()).tables(DeltaTables::normal()).build().unwrap());
    for mut sampler in samplers {
        assert_eq!(sampler.filter(&logits, &params).unwrap(), kept, "{sampler:?}");
        assert_eq!(sampler.sample(&logits, &params).unwrap(), tokens, "{sampler:?}");
        let mut found = ([9], [9; 4]);
        let mut outputs =
            ChainOutputs { accepted: Some(&mut found.0), tokens: Some(&mut found.1), ..ChainOutputs::default() };
        sampler.verify(&chains, &mut outputs).unwrap();
        assert_eq!(found, walked, "{sampler:?}");
        let mut masked = data.clone();
        let mut counts = [0; 4];
        let mut outputs = Outputs { kept: Some(&mut counts), ..Outputs::default() };
        let input = Input::from(LogitsMut::new(&mut masked, VOCAB).unwrap());
        sampler.run(input, &params, &mut outputs).unwrap();
        for (row, kept) in kept.iter().enumerate() {
            assert_eq!(counts[row] as usize, kept.ids.len());
            for id in 0..VOCAB {
                let expected = if kept.ids.contains(&(id as u32)) { data[row * VOCAB + id] } else { f32::NEG_INFINITY };
                assert_eq!(masked[row * VOCAB + id], expected, "{sampler:?}, row {row}, id {id}");
            }
        }
    }
}

// Where ties are kept whole, a threshold that rises to the cut gathers too few of them for a hit.
#[cfg(all(feature = "truncation", feature = "duplicates"))]
#[test]
fn the_plan_reaches_the_backend() {
    let logits = data();
    let logits = Logits::new(&logits, VOCAB).unwrap();
    let params = Params::default().top_k(5);
    let mut sampler = Sampler::new(BackendKind::Cpu).unwrap();
    let hits = |sampler: &mut Sampler| {
        let rows = sampler.truncate(&logits, &params).unwrap();
        assert!(rows.iter().all(|row| row.gathered.len() >= 5 || !row.hit));
        rows.iter().filter(|row| row.hit).count()
    };
    sampler.set_plan(Plan { truncation: Truncation::Adaptive, ..Plan::default() });
    assert_eq!(hits(&mut sampler), 4);
    sampler.set_plan(Plan { force_fallback: true, ..Plan::default() });
    assert_eq!(hits(&mut sampler), 0);
}

/// Cargo features reach the backend: what this crate was compiled without is refused, and nothing is written.
#[test]
fn plans_that_are_not_compiled_in_are_refused() {
    let features = Features {
        truncation: cfg!(feature = "truncation"),
        quaternary: cfg!(feature = "quaternary"),
        duplicates: cfg!(feature = "duplicates"),
        autotune: cfg!(feature = "autotune"),
    };
    assert_eq!(Features::OF_CORE, features);
    let default = Plan::default();
    let plans = [
        (features.truncation, Plan { truncation: Truncation::Adaptive, ..default }),
        (features.quaternary, Plan { search: Search::Quaternary, ..default }),
        (features.duplicates, Plan { duplicates: true, ..default }),
        (features.autotune, Plan { autotune: true, ..default }),
    ];
    let mut sampler = Sampler::new(BackendKind::Cpu).unwrap();
    for (compiled, plan) in plans {
        match Sampler::builder().backend(BackendKind::Cpu).plan(plan).build() {
            Ok(_) => assert!(compiled, "{plan:?}"),
            Err(error) => {
                assert!(!compiled && matches!(error, BuildError::Backend(Error::NotCompiled { .. })), "{error}");
            }
        }
        sampler.set_plan(plan);
        let (mut data, mut kept) = ([1.0f32, 2.0, 2.0, 0.0], [7]);
        let mut outputs = Outputs { kept: Some(&mut kept), ..Outputs::default() };
        let input = LogitsMut::new(&mut data, 4).unwrap().into();
        match sampler.run(input, &Params::default().top_k(1), &mut outputs) {
            Ok(()) => assert!(compiled && data[0] == f32::NEG_INFINITY && kept[0] < 7, "{plan:?}"),
            Err(error) => {
                assert!(!compiled && matches!(error, Error::NotCompiled { .. }), "{error} under {plan:?}");
                assert_eq!((data, kept), ([1.0, 2.0, 2.0, 0.0], [7]));
            }
        }
    }
    // What a build without duplication handling keeps of a tie at the cut: all of it.
    sampler.set_plan(default);
    let logits = [1.0f32, 2.0, 2.0, 0.0];
    let kept = sampler.filter(&Logits::new(&logits, 4).unwrap(), &Params::default().top_k(1)).unwrap();
    assert_eq!(kept[0].ids, if features.duplicates { vec![1] } else { vec![1, 2] });
}

#[test]
fn refusals_are_typed() {
    let logits = [0.0f32; 4];
    let logits = Logits::new(&logits, 2).unwrap();
    let mut sampler = Sampler::new(BackendKind::Auto).unwrap();
    let error = sampler.filter(&logits, &Params::default().top_p(&[0.5, f32::NAN])).unwrap_err();
    assert!(matches!(error, Error::Param { row: Some(1), param: "top_p", .. }), "{error}");
    assert_eq!(BuildError::from(error.clone()), BuildError::Backend(error));
    assert_eq!("hip".parse::<BackendKind>(), Err(UnknownBackend::NotBuilt("hip")));
    assert_eq!("".parse::<BackendKind>(), Err(UnknownBackend::NoSuchName(String::new())));
    for kind in [BackendKind::Auto, BackendKind::Cpu] {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    let built = Ok(BackendKind::Cuda);
    let parsed = BackendKind::Cuda.to_string().parse();
    assert_eq!(parsed, if cuda().compiled { built } else { Err(UnknownBackend::NotBuilt("cuda")) });
}

#[test]
fn cuda_starts_or_says_why_not() {
    let Availability { compiled, device, .. } = cuda();
    let sampler = Sampler::new(BackendKind::Cuda);
    let auto = Sampler::new(BackendKind::Auto).unwrap();
    match (sampler, device) {
        (Ok(sampler), Ok(device)) => {
            assert_eq!((sampler.backend_name(), sampler.description()), ("cuda", device));
            assert_eq!(auto.description(), sampler.description());
        }
        (Err(error), Err(why)) => {
            let expected = if compiled {
                BuildError::Backend(Error::Device { backend: "cuda", message: why })
            } else {
                BuildError::NotBuilt(BackendKind::Cuda)
            };
            assert_eq!(error, expected);
            assert_eq!(auto.backend_name(), "cpu");
        }
        (sampler, device) => panic!("{sampler:?}, but {device:?}"),
    }
}

#[cfg(feature = "cuda")]
#[test]
fn a_device_that_is_not_there() {
    let builder = Sampler::builder().device(4096);
    let error = builder.clone().backend(BackendKind::Cuda).build().unwrap_err();
    assert!(matches!(error, BuildError::Backend(Error::Device { backend: "cuda", .. })), "{error}");
    assert_eq!(builder.build().unwrap().backend_name(), "cpu");
}

#[test]
fn a_sampler_moves_between_threads() {
    let mut sampler = Sampler::new(BackendKind::Auto).unwrap();
    let ids = std::thread::spawn(move || {
        let logits = [1.0f32, 3.0, 2.0];
        sampler.filter(&Logits::new(&logits, 3).unwrap(), &Params::default().top_k(2)).unwrap()[0].ids.clone()
    });
    assert_eq!(ids.join().unwrap(), [1, 2]);
}

#[test]
fn availability_says_why_not() {
    let all = available();
    assert_eq!(
        all.iter().map(|a| (a.backend, a.compiled)).collect::<Vec<_>>(),
        [("cpu", true), ("cuda", cfg!(feature = "cuda")), ("hip", false)]
    );
    assert!(all[0].is_usable());
    for absent in all.iter().filter(|a| !a.compiled) {
        assert_eq!(absent.device, Err("not part of this build".to_owned()));
    }
}
