//! `qrita info`: the version, and which backends there are.

use std::thread::available_parallelism;

use qrita::{Features, Plan, available};

use crate::args::InfoArgs;
use crate::failure::Failure;
use crate::job::sampler;
use crate::output::sink::Sink;

pub(crate) fn run(args: InfoArgs) -> Result<(), Failure> {
    let sampler = sampler(&args.engine, Plan::default())?;
    let mut sink = Sink::open(None)?;
    sink.write(|out| {
        writeln!(out, "qrita {}", env!("CARGO_PKG_VERSION"))?;
        for backend in available() {
            match &backend.device {
                Ok(device) => writeln!(out, "backend {}: {device}", backend.backend)?,
                Err(why) => writeln!(out, "backend {}: none ({why})", backend.backend)?,
            }
        }
        match available_parallelism() {
            Ok(cores) => writeln!(out, "cores: {cores}")?,
            Err(error) => writeln!(out, "cores: unknown ({error})")?,
        }
        let Features { truncation, quaternary, duplicates, autotune } = Features::OF_CORE;
        let features = [
            (truncation, "truncation"),
            (quaternary, "quaternary"),
            (duplicates, "duplicates"),
            (autotune, "autotune"),
        ];
        let names: Vec<&str> = features.into_iter().filter_map(|(on, name)| on.then_some(name)).collect();
        writeln!(out, "plans with: {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") })?;
        let backend = args.engine.backend;
        writeln!(out, "chosen by --backend {backend}: {}, {}", sampler.backend_name(), sampler.description())
    })?;
    sink.finish()
}
