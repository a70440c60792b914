//! Points of point clouds.

use super::{Cloud, CloudCounts, Scan, first_source};
use crate::base::error::Result;
use crate::base::geometry::Rigid;
use crate::message::PointCloud2;

impl Cloud {
    /// Adds the points of a cloud of any frame.
    pub(super) fn add_points(
        &mut self,
        cloud: &PointCloud2,
        scan: &Scan,
        counts: &mut CloudCounts,
    ) -> Result<()> {
        let n_points = u64::from(cloud.width) * u64::from(cloud.height);
        let first_source = first_source(scan.camera, n_points, &cloud.header.frame_id)?;
        counts.n_pixels += n_points as usize;
        let (start, world_from_cloud) = (self.len(), Rigid::from_isometry(scan.world_from_camera));
        self.add(n_points as usize, counts, |points, part| {
            cloud.for_each_of(points, |index, point, color| {
                part.n_measured += 1;
                let position = world_from_cloud.apply(&point);
                if scan.workspace.contains(position) {
                    part.push(position, color, first_source + index);
                }
            });
        });
        if !cloud.has_color() {
            counts.n_uncolored += self.len() - start;
        }
        Ok(())
    }
}
