//! Cards and drivers in which something is wrong.

use super::*;
use crate::Error;

#[test]
fn cards_that_are_not_there_or_too_old_are_named_with_a_remedy() {
    if !has_faulty_cards() {
        return;
    }
    let told = |ordinal| match Gpu::open(ordinal) {
        Err(Error::Device { device, problem }) => format!("{device}: {problem}"),
        other => panic!("{other:?}"),
    };
    let message = told(99);
    assert!(message.starts_with("cuda:99: ") && message.contains("knows 6 cards"), "{message}");
    let message = told(3);
    assert!(message.contains("compute capability 7.5, 8.0 is needed"), "{message}");
    assert!(message.contains("device: cpu"), "{message}");
    assert_eq!(open(1).name(), "Stand-in of Hopper");
}
