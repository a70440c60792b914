//! Rays of the pixels of cameras, kept as long as the calibration is the same.

use crate::base::error::Result;
use crate::base::geometry::Rigid;
use crate::message::CameraInfo;
use crate::vision::camera::{Camera, RayTable};
use nalgebra::{Isometry3, Vector3};
use std::sync::Arc;

use super::color::DepthBuffer;

/// What the clouds of a sequence of frames share; no part of a cloud's value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Optics {
    pub(super) depth: Lenses,
    pub(super) color: Lenses,
    pub(super) buffer: DepthBuffer,
}

/// One lens for each camera, by its number.
#[derive(Debug, Clone, Default)]
pub(super) struct Lenses(Vec<Option<Lens>>);

/// A camera as its calibration describes it.
#[derive(Debug, Clone)]
pub(super) struct Lens {
    info: Arc<CameraInfo>,
    pub(super) camera: Camera,
    /// Rays of a depth camera with distortion, made on first use.
    table: Option<RayTable>,
}

impl Lenses {
    /// The lens of camera number `index`, which `info` describes.
    ///
    /// # Errors
    /// As [`Camera::new`].
    pub(super) fn of(&mut self, index: usize, info: &Arc<CameraInfo>) -> Result<&mut Lens> {
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        let slot = &mut self.0[index];
        let lens = match slot.take() {
            Some(lens) if Arc::ptr_eq(&lens.info, info) => lens,
            old => {
                let camera = Camera::new(info)?;
                // The same calibration in a new message: its rays are the same.
                let table = old.and_then(|old| old.table);
                Lens { info: info.clone(), camera, table }
            }
        };
        Ok(slot.insert(lens))
    }

    /// The lens of camera number `index`, if there was one.
    pub(super) fn get(&self, index: usize) -> Option<&Lens> {
        self.0.get(index)?.as_ref()
    }
}

impl Lens {
    /// The table that [`Lens::table`] made.
    pub(super) fn made_table(&self) -> Option<&RayTable> {
        self.table.as_ref()
    }

    /// The rays of all pixels of an image as large as the calibration says; `None`: they are
    /// linear in the pixel.
    ///
    /// # Errors
    /// As [`RayTable::new`].
    pub(super) fn table(&mut self) -> Result<Option<&RayTable>> {
        let size = [self.info.width, self.info.height];
        if self.camera.is_pinhole() {
            self.table = None;
        } else if !self.table.as_ref().is_some_and(|table| table.is_of(&self.camera, size)) {
            self.table = Some(RayTable::new(self.camera, size)?);
        }
        Ok(self.table.as_ref())
    }
}

/// Points behind the pixels of a depth image, in another frame than the camera's.
pub(super) trait Rays {
    /// What the pixels of a row have in common.
    type Row;

    fn row(&self, v: u32) -> Self::Row;

    /// Point (m) behind column `u` of a row, at `depth_m` along the optical axis.
    fn point(&self, row: &Self::Row, u: u32, depth_m: f32) -> [f32; 3];
}

/// Rays of a camera without distortion: `point = origin + depth * ray`,
/// `ray = first + u * per_column + v * per_row`.
pub(crate) struct LinearRays {
    pub(crate) origin: [f32; 3],
    first: [f64; 3],
    pub(crate) per_column: [f32; 3],
    per_row: [f64; 3],
}

impl LinearRays {
    /// In the frame that `frame_from_camera` maps into.
    pub(super) fn new(camera: &Camera, frame_from_camera: &Isometry3<f64>) -> Self {
        let rotation = frame_from_camera.rotation.to_rotation_matrix();
        let column = |i: usize| rotation.matrix().column(i).into_owned();
        let first = rotation * Vector3::from(camera.ray([0.0, 0.0]));
        Self {
            origin: frame_from_camera.translation.vector.cast::<f32>().into(),
            first: first.into(),
            per_column: (column(0) / camera.focal[0]).cast::<f32>().into(),
            per_row: (column(1) / camera.focal[1]).into(),
        }
    }

    /// Ray of column 0 of row `v`.
    pub(crate) fn first_of(&self, v: u32) -> [f32; 3] {
        std::array::from_fn(|i| (self.first[i] + f64::from(v) * self.per_row[i]) as f32)
    }
}

impl Rays for LinearRays {
    /// Ray of column 0.
    type Row = [f32; 3];

    fn row(&self, v: u32) -> [f32; 3] {
        self.first_of(v)
    }

    #[inline]
    fn point(&self, row: &[f32; 3], u: u32, depth_m: f32) -> [f32; 3] {
        let u = u as f32;
        std::array::from_fn(|i| self.origin[i] + depth_m * (row[i] + u * self.per_column[i]))
    }
}

/// Rays of a camera with distortion.
pub(super) struct TableRays<'a> {
    table: &'a RayTable,
    rigid: Rigid,
}

impl<'a> TableRays<'a> {
    /// In the frame that `frame_from_camera` maps into.
    pub(super) fn new(table: &'a RayTable, frame_from_camera: &Isometry3<f64>) -> Self {
        Self { table, rigid: Rigid::from_isometry(frame_from_camera) }
    }
}

impl<'a> Rays for TableRays<'a> {
    /// x and y at depth 1 m of each column.
    type Row = &'a [[f32; 2]];

    fn row(&self, v: u32) -> &'a [[f32; 2]] {
        self.table.row(v)
    }

    #[inline]
    fn point(&self, row: &&'a [[f32; 2]], u: u32, depth_m: f32) -> [f32; 3] {
        // NaN where the lens sees nothing, and beside the image.
        let [x, y] = row.get(u as usize).copied().unwrap_or([f32::NAN; 2]);
        self.rigid.apply(&[depth_m * x, depth_m * y, depth_m])
    }
}
