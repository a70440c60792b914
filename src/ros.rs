//! probe
pub fn probe() -> usize {
    let m = r2r::forecloud::msg::Prediction::default();
    let _ = r2r::Context::create();
    m.positions.len()
}
