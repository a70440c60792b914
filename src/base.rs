//! The ground floor: errors, geometry, draws by counter, vector code, threads. Knows nothing of robots.

pub mod end_signal;
pub mod error;
pub mod geometry;
pub mod instruction_set;
pub mod keep_workers_hot;
pub mod random;
pub mod scratch;
pub mod simd;
pub mod whole_file;
