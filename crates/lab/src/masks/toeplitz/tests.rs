//! Toeplitz masks against the dense matrix.

use super::super::check::{assert_products, softplus64};
use super::*;
use forecloud::Error;

/// Place of node `i` of a grid along each axis, the last first.
fn place(shape: &[usize], mut i: usize) -> Vec<i64> {
    let mut along = |&len: &usize| {
        let at = i % len;
        i /= len;
        at as i64
    };
    shape.iter().rev().map(&mut along).collect()
}

#[test]
fn the_toeplitz_mask_is_the_dense_one() {
    let grids: [(&str, &[usize], &[usize]); 6] = [
        ("steps of time", &[13], &[4]),
        ("an image", &[5, 7], &[2, 3]),
        ("all offsets", &[3, 4], &[2, 3]),
        ("cells", &[3, 2, 5], &[1, 1, 2]),
        ("one node", &[1], &[0]),
        ("a lone number", &[], &[]),
    ];
    for (name, shape, reach) in grids {
        let by_sums = Toeplitz::new(shape, reach).unwrap();
        let n: usize = shape.iter().product();
        assert_eq!((by_sums.n_nodes(), by_sums.sums.is_some()), (n, !shape.is_empty()));
        let by_transforms = Toeplitz { sums: None, ..by_sums.clone() };
        let entries = |params: &[f64]| -> Vec<f64> {
            let entry = |at: usize| {
                let (to, from) = (place(shape, at / n), place(shape, at % n));
                let (mut index, mut stride) = (0, 1);
                for (shift, &reach) in
                    to.iter().zip(&from).map(|(a, b)| a - b).zip(reach.iter().rev())
                {
                    let (reach, side) = (reach as i64, 2 * reach as i64 + 1);
                    if shift.abs() > reach {
                        return 0.0;
                    }
                    index += (shift + reach) * stride;
                    stride *= side;
                }
                softplus64(params[index as usize])
            };
            (0..n * n).map(entry).collect()
        };
        for mask in [by_sums, by_transforms] {
            assert_products(name, &mask, mask.n_params(), 1e-5, entries);
        }
    }
}

/// Columns of one node alone: what others do not hear of it is 0, to what f64 rounds to.
#[test]
fn nothing_is_heard_from_beyond_the_reach() {
    for reach in [5, 90] {
        let mask = Toeplitz::new(&[200], &[reach]).unwrap();
        assert_eq!(mask.sums.is_none(), reach > 5);
        let (params, mut y) = (vec![1.0; mask.n_params()], vec![f32::NAN; 200]);
        let x: Vec<f32> = (0..200).map(|i| if i == 100 { 1e3 } else { 0.0 }).collect();
        mask.apply(&params, &x, &mut y);
        let far = y.iter().enumerate().filter(|(i, _)| i.abs_diff(100) > reach);
        assert!(far.clone().count() >= 19 && far.clone().all(|(_, y)| y.abs() < 1e-12), "{y:?}");
        assert!(y[100 - reach] > 1e3 && y[100 + reach] > 1e3);
    }
}

#[test]
fn grids_too_large_or_shorter_than_the_reach_are_refused() {
    for (shape, reach) in [
        (&[4usize, 4][..], &[1usize][..]),
        (&[usize::MAX, 2], &[1, 1]),
        (&[1 << 13, 1 << 12], &[1, 1]),
        (&[4, 4], &[1, 4]),
        (&[0, 4], &[0, 1]),
    ] {
        let refused = matches!(Toeplitz::new(shape, reach), Err(Error::Shape { .. }));
        assert!(refused || shape == [0, 4], "{shape:?}, {reach:?}");
    }
    assert_eq!(Toeplitz::new(&[0, 4], &[0, 1]).unwrap().n_nodes(), 0);
}
