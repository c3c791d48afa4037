//! Codes and messages of failures, and what every entry point runs in.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use qrita::{BuildError, Error};

/// What came of a call. Any other code than `QRITA_CODE_OK` means that nothing was written or launched; `qrita_message` says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum QritaCode {
    /// It is done, or on CUDA launched.
    Ok = 0,
    /// A parameter has a value outside its range.
    Param = 1,
    /// Memory is too short.
    Length = 2,
    /// The shape of the logits, or an alignment, is none that there may be.
    Shape = 3,
    /// The build, or the backend, has no such thing.
    Unsupported = 4,
    /// The device, its driver or its runtime failed, or is not there.
    Device = 5,
    /// A pointer is null, or a text is no UTF-8, where it must not be.
    Pointer = 6,
    /// A struct is of another ABI than the library's, or was not initialised.
    Abi = 7,
    /// A fault of the library's: it panicked. What the call was to write may have been written in part.
    Panic = 8,
}

/// Why a call fails: its code, and its message.
pub(crate) struct Failure(QritaCode, String);

impl Failure {
    pub(crate) fn new(code: QritaCode, message: impl Into<String>) -> Failure {
        Failure(code, message.into())
    }

    pub(crate) fn null(what: &str) -> Failure {
        Failure::new(QritaCode::Pointer, format!("{what} is null"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Param { .. } => QritaCode::Param,
            Error::Length { .. } => QritaCode::Length,
            Error::Shape { .. } => QritaCode::Shape,
            Error::Device { .. } => QritaCode::Device,
            _ => QritaCode::Unsupported,
        };
        Failure(code, error.to_string())
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Failure {
        match error {
            BuildError::Backend(error) => error.into(),
            other => Failure(QritaCode::Unsupported, other.to_string()),
        }
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs an entry point: no panic gets past it, and a failure leaves its message.
pub(crate) fn enter(work: impl FnOnce() -> Result<(), Failure>) -> QritaCode {
    let ended = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of an unknown kind");
        Err(Failure::new(QritaCode::Panic, format!("a panic in the library: {text}")))
    });
    let Err(Failure(code, message)) = ended else { return QritaCode::Ok };
    // A message of ours has no zero byte; one of a driver's might.
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    MESSAGE.with(|last| last.replace(message));
    code
}

/// What was wrong with the last call of this thread that failed: UTF-8, valid until the next one fails; empty before. It names
/// the parameter, its row and its value.
#[unsafe(no_mangle)]
pub extern "C" fn qrita_message() -> *const c_char {
    catch_unwind(|| MESSAGE.with(|last| last.borrow().as_ptr())).unwrap_or(ptr::null())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn message() -> String {
        // SAFETY: the message lives until this thread's next failure.
        unsafe { CStr::from_ptr(qrita_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_a_code_with_its_text() {
        assert_eq!(message(), "");
        assert_eq!(enter(|| panic!("row {} of {}", 3, 2)), QritaCode::Panic);
        assert_eq!(message(), "a panic in the library: row 3 of 2");
        assert_eq!(enter(|| panic!("fixed")), QritaCode::Panic);
        assert_eq!(message(), "a panic in the library: fixed");
    }

    #[test]
    fn a_message_is_of_the_last_failure_of_its_thread() {
        assert_eq!(enter(|| Err(Failure::new(QritaCode::Param, "a\0b"))), QritaCode::Param);
        assert_eq!(enter(|| Ok(())), QritaCode::Ok);
        assert_eq!(message(), "a b");
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
    }
}
