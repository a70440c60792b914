//! Operations of the laboratory's layers, as those of the engine: forward and backward side by side, each
//! with a plain f64 version that the tests hold it against.

mod comb_maxima;
pub mod grf_kernel_attention;
pub mod k_mip_attention;
pub mod masked_attention;
pub mod message_passing;
pub mod softmax_attention;
