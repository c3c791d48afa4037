//! The oracle passes its own suite: the suite's plumbing is sound, and the cases worked out by hand hold the oracle.

use qrita_testkit::oracle::OracleBackend;

qrita_testkit::conformance!(OracleBackend);
