//! The committed header is the one that cbindgen makes of the source.

use std::path::Path;

use cbindgen::{Builder, Config, EnumConfig, Language, RenameRule, Style};

/// What the header starts with.
const HEAD: &str = "\
/* Qrita: exact top-k, top-p and min-p filtering and sampling of logits. Made by cbindgen of crates/capi: do not edit.
 *
 * Initialise a QritaParams and a QritaOutputs by their functions, set what differs, and call. Functions with a QritaCode return
 * QRITA_CODE_OK or leave all memory of the caller's as it was; qrita_message says what was wrong. */";

fn header() -> String {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = Config { language: Language::C, style: Style::Both, cpp_compat: true, ..Config::default() };
    config.header = Some(HEAD.to_owned());
    config.include_guard = Some("QRITA_H".to_owned());
    config.usize_is_size_t = true;
    config.documentation_style = cbindgen::DocumentationStyle::C;
    config.line_length = 120;
    config.enumeration =
        EnumConfig { rename_variants: RenameRule::QualifiedScreamingSnakeCase, ..EnumConfig::default() };
    let builder = ["code", "types", "host", "cuda"].iter().fold(Builder::new().with_config(config), |builder, file| {
        builder.with_src(crate_folder.join("src").join(file).with_extension("rs"))
    });
    let mut text = Vec::new();
    builder.generate().expect("a header").write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn the_committed_header_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include").join("qrita.h");
    let header = header();
    if std::env::var_os("QRITA_WRITE_HEADER").is_some() {
        std::fs::write(&path, &header).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == header, "include/qrita.h is not current: QRITA_WRITE_HEADER=1 cargo test -p qrita-capi");
}
