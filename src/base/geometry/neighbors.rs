//! Exact nearest neighbours of many points at once, the same whatever they are found by: a uniform
//! grid, or kiddo's k-d tree where points are spread too unevenly for it.

mod grid;

use rayon::prelude::*;

use super::{PointTree, Vec3};
use crate::base::simd::vectorize;
use crate::{Error, Result};
use grid::Grid;

/// Queries handed to one thread at a time.
const QUERY_CHUNK: usize = 512;

/// Finds nearest points; keeps its memory. Of points that are as near, the lower index is nearer.
#[derive(Debug, Default, Clone)]
pub struct Neighbors {
    grid: Grid,
}

impl Neighbors {
    /// The `k` others of `points` (m) that are nearest to each, nearest first: `[points.len(), k]`
    /// indices into `found`. A point is no neighbour of itself, however many others share its place.
    ///
    /// # Errors
    /// [`Error::TooFewPoints`] unless there are more than `k`; [`Error::NonFinite`] for positions
    /// that are not finite.
    pub fn k_nearest(&mut self, points: &[Vec3], k: usize, found: &mut Vec<u32>) -> Result<()> {
        check(points, k)?;
        if k > grid::MAX_K || !self.grid.rebuild(points) {
            return k_nearest_by_tree(points, k, found);
        }
        found.resize(points.len() * k, 0);
        let grid = &self.grid;
        found.par_chunks_mut(QUERY_CHUNK * k).enumerate().for_each(|(chunk, rows)| {
            let first = chunk * QUERY_CHUNK;
            grid.search(first..first + rows.len() / k, points, k, rows);
        });
        Ok(())
    }

    /// As [`Self::k_nearest`], by the tree alone: what the grid is held against.
    ///
    /// # Errors
    /// As there.
    pub fn k_nearest_by_tree(points: &[Vec3], k: usize, found: &mut Vec<u32>) -> Result<()> {
        check(points, k)?;
        k_nearest_by_tree(points, k, found)
    }

    /// The index in `points` of the one nearest to each of `queries` (both m), into `found`.
    ///
    /// # Errors
    /// [`Error::TooFewPoints`] without points, [`Error::NonFinite`] for positions that are not
    /// finite.
    pub fn nearest(
        &mut self,
        points: &[Vec3],
        queries: &[Vec3],
        found: &mut Vec<u32>,
    ) -> Result<()> {
        found.resize(queries.len(), 0);
        if queries.is_empty() {
            return Ok(());
        }
        if points.is_empty() {
            return Err(Error::TooFewPoints { needed: 1, got: 0 });
        }
        if !points.iter().chain(queries).flatten().all(|c| c.is_finite()) {
            return Err(Error::NonFinite { what: "positions of a nearest-neighbours search" });
        }
        let chunks = found.par_chunks_mut(QUERY_CHUNK).zip(queries.par_chunks(QUERY_CHUNK));
        if self.grid.rebuild(points) {
            let grid = &self.grid;
            chunks.for_each(|(found, queries)| {
                vectorize(|| {
                    let rows = found.iter_mut().zip(queries);
                    rows.for_each(|(found, query)| *found = grid.nearest_point(query));
                });
            });
            return Ok(());
        }
        let tree = PointTree::new(points)?;
        chunks.for_each(|(found, queries)| {
            let rows = found.iter_mut().zip(queries);
            rows.for_each(|(found, query)| *found = tree.nearest(points, query));
        });
        Ok(())
    }
}

fn check(points: &[Vec3], k: usize) -> Result<()> {
    if points.len() <= k || k == 0 {
        return Err(Error::TooFewPoints { needed: k + 1, got: points.len() });
    }
    if !points.iter().flatten().all(|c| c.is_finite()) {
        return Err(Error::NonFinite { what: "positions of a nearest-neighbours search" });
    }
    Ok(())
}

/// By kiddo, which allocates for every query.
fn k_nearest_by_tree(points: &[Vec3], k: usize, found: &mut Vec<u32>) -> Result<()> {
    let tree = PointTree::new(points)?;
    found.resize(points.len() * k, 0);
    let chunks = found.par_chunks_mut(QUERY_CHUNK * k).enumerate();
    chunks.for_each_init(Vec::new, |nearest, (chunk, rows)| {
        for (row, out) in rows.chunks_exact_mut(k).enumerate() {
            tree.k_nearest(points, chunk * QUERY_CHUNK + row, k, nearest);
            out.iter_mut().zip(&*nearest).for_each(|(slot, &(_, index))| *slot = index);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests;
