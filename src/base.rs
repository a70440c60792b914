//! The ground floor: errors, geometry, draws by counter, vector code, threads. Knows nothing of robots.

pub mod awake;
pub mod error;
pub mod geometry;
pub mod instruction_set;
pub mod random;
pub mod scratch;
pub mod simd;
pub mod whole_file;
