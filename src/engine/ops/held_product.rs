//! Matrix products on narrower vector instructions than the processor has.
//!
//! The crate `gemm` takes the widest and cannot be told otherwise; the crates that it is made of
//! have its kernel of each width.

use gemm::Parallelism;
use gemm_common::gemm::gemm_basic_generic;
use gemm_common::simd::MixedSimd;

use crate::base::instruction_set::InstructionSet;

/// A matrix of a product: its first number, and the distances between columns and between rows.
pub(super) type Operand<P> = (P, isize, isize);

/// Calls `gemm`'s product on one kernel.
macro_rules! product_on {
    ($simd:ty, $kernel:ident, $lanes:literal, $sizes:expr, $out:expr, $add:expr, $a:expr, $b:expr) => {{
        use gemm_f32::microkernel::$kernel::f32::{H_M, H_N, H_UKR, MR_DIV_N, NR, UKR};
        let Some(simd) = <$simd as MixedSimd<f32, f32, f32, f32>>::try_new() else { return false };
        let ((m, n, k), (out, out_cs, out_rs)) = ($sizes, $out);
        let ((a, a_cs, a_rs), (b, b_cs, b_rs)) = ($a, $b);
        // SAFETY: the caller's; `simd` proves that the processor has the kernel's instructions.
        unsafe {
            gemm_basic_generic::<_, f32, $lanes, { MR_DIV_N * $lanes }, NR, MR_DIV_N, H_M, H_N>(
                simd,
                m,
                n,
                k,
                out,
                out_cs,
                out_rs,
                $add,
                a,
                a_cs,
                a_rs,
                b,
                b_cs,
                b_rs,
                1.0,
                1.0,
                false,
                false,
                false,
                |a, b, c| a * b + c,
                &UKR,
                &H_UKR,
                false,
                Parallelism::None,
            );
        }
        true
    }};
}

/// out = a·b, or out += a·b when `add`, `[m, n] = [m, k]·[k, n]`, on the instructions of `set`; false,
/// and nothing done, where there is no kernel of that width.
///
/// # Safety
/// Every element that sizes and distances reach lies within its matrix; nobody else reads or writes
/// `out` meanwhile.
pub(super) unsafe fn held_product(
    set: InstructionSet,
    (m, n, k): (usize, usize, usize),
    (out, out_cs, out_rs): Operand<*mut f32>,
    add: bool,
    (a, a_cs, a_rs): Operand<*const f32>,
    (b, b_cs, b_rs): Operand<*const f32>,
) -> bool {
    // The kernels want the output by columns: transposed, as `gemm` does.
    let (sizes, out) = ((n, m, k), (out, out_rs, out_cs));
    let (a, b) = ((b, b_rs, b_cs), (a, a_rs, a_cs));
    match set {
        InstructionSet::Scalar => {
            product_on!(gemm_common::simd::Scalar, scalar, 1, sizes, out, add, a, b)
        }
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => {
            product_on!(gemm_common::simd::V3, fma, 8, sizes, out, add, a, b)
        }
        _ => false,
    }
}
