//! Compiles the machine, the kernel once for every warp, dtype and stage, the planted faults of the tests, and the
//! functions that a test compares one by one.
//!
//! The dtype and the stage choose code, as for a device, so they are macros; the plan is read from the launch, or there
//! would be 3200 builds.

use std::path::{Path, PathBuf};
use std::{env, fs};

use qrita_kernels::{ENTRY, capacities};

/// The most threads of a block: how long arrays with one element a thread are.
const MAX_THREADS: u32 = 256;

const WARPS: [u32; 2] = [32, 64];
const DTYPES: u32 = 3;
const STAGES: u32 = 10;
/// The stage whose argument is another: chains.
const VERIFY: u32 = 8;
/// Stages that most launches are of: stream, finish, cut.
const BUSY: [u32; 3] = [5, 6, 7];
/// Copies of their kernels: as many tests can run one at once, see `hooks.h`.
const COPIES: u32 = 2;

/// What `qrita_testkit::functions` has every device compile.
const FUNCTIONS: &str = "../testkit/src/functions.cpp";

/// What no device promises, and the host would do silently, or otherwise than a device.
const CHECKS: &str = "-fsanitize=bounds,shift,alignment,null,integer-divide-by-zero,float-cast-overflow";

fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    build.cpp(true).cpp_link_stdlib(None).std("c++17").opt_level(2).warnings(true).extra_warnings(false);
    // Each operation is rounded on its own, as the kernel asks of every device.
    build.flag("-ffp-contract=off").flag("-fno-fast-math");
    build.flag("-fno-exceptions").flag("-fno-rtti").flag("-fno-threadsafe-statics");
    build.flag_if_supported("-Wno-unknown-pragmas").flag_if_supported("-Wno-unused-function");
    // The library is part of a program, never loaded into one that runs.
    build.flag("-ftls-model=initial-exec");
    build.include("src/machine");
    build
}

/// A file with `before`, the source up to and with portability.h, the shim's hooks, the rest of the source, `after`.
fn unit(folder: &Path, name: &str, defines: &[(&str, u32)], rest: &str, after: &str) -> PathBuf {
    let source = qrita_kernels::source();
    let (portability, _) = split(&source);
    let defines: String =
        defines.iter().chain(&capacities()).map(|(name, value)| format!("#define {name} {value}\n")).collect();
    let text = format!(
        "#define QRITA_SIMT 1\n#define SIMT_SECTION_NAME {name}_shared\n#define SIMT_SECTION \"{name}_shared\"\n\
         {defines}#include \"prelude.h\"\n{portability}\n#include \"hooks.h\"\n{rest}\n#include \"kernel.h\"\n{after}\n"
    );
    let path = folder.join(format!("{name}.cpp"));
    // An unchanged file keeps its date.
    if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
        fs::write(&path, text).expect("OUT_DIR can be written");
    }
    path
}

/// The source up to the end of portability.h, and what follows.
fn split(source: &str) -> (&str, &str) {
    let place = source.find("#line 1 \"call.h\"").expect("call.h follows portability.h");
    assert!(source[..place].contains("#line 1 \"portability.h\""), "portability.h comes before call.h");
    source.split_at(place)
}

fn main() {
    for path in ["build.rs", "src/machine", "tests/planted.cpp", FUNCTIONS] {
        println!("cargo:rerun-if-changed={path}");
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));

    let mut machine = compiler();
    if env::var_os("QRITA_SIMT_UCONTEXT").is_some() {
        machine.define("SIMT_UCONTEXT", None);
    }
    println!("cargo:rerun-if-env-changed=QRITA_SIMT_UCONTEXT");
    let mut kernels = compiler();
    kernels.flag(CHECKS).flag("-fno-sanitize-recover=all");

    let source = qrita_kernels::source();
    let rest = split(&source).1;
    let (mut declarations, mut table) = (String::new(), String::new());
    for warp in WARPS {
        table += "[";
        for dtype in 0..DTYPES {
            table += "[";
            for stage in 0..STAGES {
                table += "&[";
                for copy in 0..if BUSY.contains(&stage) { COPIES } else { 1 } {
                    let name = format!("qrita_simt_{warp}_{dtype}_{stage}_{copy}");
                    let defines = [("WARP", warp), ("DTYPE", dtype), ("STAGE", stage), ("THREADS", MAX_THREADS)];
                    // The entry has the same name in each: it becomes one of its own.
                    let rest = format!("#define {ENTRY} {name}_entry\n{rest}");
                    let argument = if stage == VERIFY { "ChainCall" } else { "Call" };
                    let after = format!("SIMT_KERNEL({name}, {name}_entry, {argument})");
                    kernels.file(unit(&folder, &name, &defines, &rest, &after));
                    declarations += &format!("    static {name}: Kernel;\n");
                    table += &format!("unsafe {{ &{name} }}, ");
                }
                table += "], ";
            }
            table += "],\n";
        }
        table += "],\n";
        let name = format!("qrita_simt_planted_{warp}");
        let planted = "#include \"planted.cpp\"";
        let defines = [("WARP", warp), ("DTYPE", 0), ("STAGE", 0), ("THREADS", MAX_THREADS)];
        kernels.file(unit(&folder, &name, &defines, planted, ""));
    }
    // Stage 3 is the smallest; what is asked for is in every one.
    let name = "qrita_simt_functions";
    let defines = [("WARP", 32), ("DTYPE", 0), ("STAGE", 3), ("THREADS", MAX_THREADS)];
    let rest = format!("#define {ENTRY} {name}_entry\n{rest}\n#include \"{FUNCTIONS}\"");
    let after = format!("SIMT_KERNEL({name}, functions, FunctionsCall)");
    kernels.file(unit(&folder, name, &defines, &rest, &after));
    kernels.include("tests").include(".").compile("qrita_simt_kernels");
    machine.file("src/machine/machine.cpp").compile("qrita_simt_machine");

    let table = format!(
        "/// The most threads that a block of the kernel has.\npub const MAX_THREADS: u32 = {MAX_THREADS};\n\
         unsafe extern \"C\" {{\n{declarations}}}\n\
         // SAFETY: the library defines them, and nothing writes to them.\n\
         /// The copies of a kernel, by warp, dtype and stage.\n\
         static KERNELS: [[[&[&Kernel]; {STAGES}]; {DTYPES}]; 2] = [\n{table}];\n"
    );
    fs::write(folder.join("kernels.rs"), table).expect("OUT_DIR can be written");
}
