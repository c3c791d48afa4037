//! Compiled kernels on disk, so that only the first process on a machine waits for the compiler.
//!
//! An entry is one file, named by the hash of its key: source, options (which name architecture and macros) and NVRTC's
//! version. The key itself is in the file and must be equal, and the machine code has a checksum: a collision, a cut-off
//! or a spoilt file is no entry. Files are written under another name and renamed, so that a reader sees all or nothing.
//! The cache never fails: what can not be read is compiled, what can not be written is not kept.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use qrita_core::Error;

/// The first bytes of an entry; the digit rises with the layout.
const MAGIC: &[u8; 16] = b"qrita-cubin 1\n\0\0";

/// A folder with compiled kernels, or none.
///
/// The environment variable `QRITA_CACHE` set to `off` turns the cache of [`Cache::from_env`] off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// No cache: every kernel is compiled.
    pub fn off() -> Cache {
        Cache::default()
    }

    /// A cache in this folder, which is made when the first entry is written.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: Some(folder.into()) }
    }

    /// The user's: `$XDG_CACHE_HOME/qrita`, or `$HOME/.cache/qrita`; off where neither is known.
    pub fn from_env() -> Cache {
        Cache::from_vars(|name| std::env::var_os(name).map(PathBuf::from))
    }

    fn from_vars(var: impl Fn(&str) -> Option<PathBuf>) -> Cache {
        if var("QRITA_CACHE").is_some_and(|value| value == Path::new("off")) {
            return Cache::off();
        }
        // The XDG specification has relative paths ignored.
        let absolute = |name| var(name).filter(|path| path.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        Cache { folder: base.map(|base| base.join("qrita")) }
    }

    /// The folder; `None` when off.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The machine code with this key: from the cache, or as `compile` makes it.
    pub(crate) fn get_or_compile(
        &self,
        key: &[u8],
        compile: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<Vec<u8>, Error> {
        let Some(folder) = &self.folder else { return compile() };
        let path = folder.join(format!("{:016x}.cubin", fnv1a(key)));
        if let Some(cubin) = fs::read(&path).ok().as_deref().and_then(|entry| decode(entry, key)) {
            return Ok(cubin.to_vec());
        }
        let cubin = compile()?;
        // A read-only or full disk costs time in the next process, nothing else.
        let _ = write(folder, &path, &encode(key, &cubin));
        Ok(cubin)
    }
}

fn encode(key: &[u8], cubin: &[u8]) -> Vec<u8> {
    let mut entry = MAGIC.to_vec();
    for number in [key.len() as u64, cubin.len() as u64, fnv1a(cubin)] {
        entry.extend(number.to_le_bytes());
    }
    entry.extend(key);
    entry.extend(cubin);
    entry
}

fn decode<'e>(entry: &'e [u8], key: &[u8]) -> Option<&'e [u8]> {
    let (magic, rest) = entry.split_first_chunk::<16>()?;
    let (key_len, rest) = rest.split_first_chunk::<8>()?;
    let (cubin_len, rest) = rest.split_first_chunk::<8>()?;
    let (checksum, rest) = rest.split_first_chunk::<8>()?;
    let (found, cubin) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*key_len)).ok()?)?;
    let is_whole =
        cubin.len() as u64 == u64::from_le_bytes(*cubin_len) && fnv1a(cubin) == u64::from_le_bytes(*checksum);
    (magic == MAGIC && found == key && is_whole).then_some(cubin)
}

fn write(folder: &Path, path: &Path, entry: &[u8]) -> std::io::Result<()> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    fs::create_dir_all(folder)?;
    // No two writers have the same: not two processes, not two threads.
    let unique = format!("tmp-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let temporary = path.with_extension(unique);
    let write = || {
        let mut file = fs::File::create_new(&temporary)?;
        file.write_all(entry)?;
        drop(file);
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        // It may not exist, and there is nothing else to do about it.
        let _ = fs::remove_file(&temporary);
    })
}

/// FNV-1a in 64 bits: the same in every build, and enough where the whole key is compared.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failed;

    fn must_not_compile() -> Result<Vec<u8>, Error> {
        Err(failed("compiled in spite of an entry"))
    }

    fn only_file(folder: &Path) -> PathBuf {
        let files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }

    #[test]
    fn an_entry_is_found_again_by_its_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(folder.path().join("made/when/needed"));
        assert_eq!(cache.get_or_compile(b"key", || Ok(b"code".to_vec())).unwrap(), b"code");
        assert_eq!(cache.get_or_compile(b"key", must_not_compile).unwrap(), b"code");
        assert!(cache.get_or_compile(b"other", must_not_compile).is_err());
        assert_eq!(Cache::off().get_or_compile(b"key", || Ok(vec![7])).unwrap(), [7]);
    }

    #[test]
    fn a_spoilt_entry_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(folder.path());
        cache.get_or_compile(b"key", || Ok(b"code".to_vec())).unwrap();
        let path = only_file(folder.path());
        let good = fs::read(&path).unwrap();
        let mut spoilt: Vec<Vec<u8>> = (0..good.len()).map(|len| good[..len].to_vec()).collect();
        for at in 0..good.len() {
            let mut entry = good.clone();
            entry[at] ^= 1;
            spoilt.push(entry);
        }
        spoilt.push([&good[..], &[0]].concat());
        for entry in spoilt {
            fs::write(&path, &entry).unwrap();
            assert_eq!(cache.get_or_compile(b"key", || Ok(b"code".to_vec())).unwrap(), b"code");
            assert_eq!(fs::read(only_file(folder.path())).unwrap(), good);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_costs_nothing_but_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "in the way").unwrap();
        let cache = Cache::in_folder(&file);
        assert_eq!(cache.get_or_compile(b"key", || Ok(vec![1])).unwrap(), [1]);
        assert_eq!(cache.get_or_compile(b"key", || Ok(vec![2])).unwrap(), [2]);
    }

    #[test]
    fn the_environment_chooses_the_folder() {
        let folder = |vars: &[(&str, &str)]| {
            let var = |name: &str| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value));
            Cache::from_vars(var).folder
        };
        assert_eq!(folder(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), Some("/c/qrita".into()));
        assert_eq!(folder(&[("XDG_CACHE_HOME", "c"), ("HOME", "/h")]), Some("/h/.cache/qrita".into()));
        assert_eq!(folder(&[("HOME", "/h"), ("QRITA_CACHE", "off")]), None);
        assert_eq!(folder(&[]), None);
    }
}
