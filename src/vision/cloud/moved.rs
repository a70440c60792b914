//! A box that goes with a frame of the robot, such as that of a mobile base.
//!
//! Everything is predicted in the world frame, so that what was observed before stays valid when the box moves
//! on: the history, the last predictions and the objects' numbers. What only one of two frames looked at tells
//! nothing of motion: see `src/vision/motion/overlap.rs`.

use nalgebra::{Isometry3, Point3};

use super::{Place, Workspace};

/// Corners of a box that moves lie on a grid of this share of its shorter horizontal side: it stays where it is
/// until the base has driven on by so much. It hangs on the pose alone, so that predictions do not hang on the way
/// that led there.
const GRID_SHARE: f32 = 0.125;

/// Steps of the origin's height: the noise of odometry is less.
const HEIGHTS_PER_M: f64 = 100.0;
/// What numbers of half the digits are off, at most (m): a corner on the grid stays there.
const ROUNDING: f64 = 1e-5;

impl Workspace {
    /// This box, which is given in a frame of pose `world_from_own`, in the world frame: upright, and so large
    /// that it holds all of it. None is the world frame itself.
    pub fn in_world(&self, world_from_own: Option<&Isometry3<f64>>) -> Self {
        let Some(pose) = world_from_own else { return *self };
        let Self { min, max } = self;
        let grid_m = f64::from(GRID_SHARE * (max[0] - min[0]).min(max[1] - min[1]));
        let (mut low, mut high) = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
        for i in 0..8 {
            let pick = |axis: usize| if i >> axis & 1 == 0 { min[axis] } else { max[axis] };
            let corner = pose * Point3::from([0, 1, 2].map(pick)).cast::<f64>();
            for axis in 0..3 {
                low[axis] = low[axis].min(corner[axis]);
                high[axis] = high[axis].max(corner[axis]);
            }
        }
        let on_grid = |x: f64, round: fn(f64) -> f64| (round(x / grid_m) * grid_m) as f32;
        Self {
            min: low.map(|x| on_grid(x + ROUNDING, f64::floor)),
            max: high.map(|x| on_grid(x - ROUNDING, f64::ceil)),
        }
    }
}

impl Place {
    /// This place, which is given in a frame of pose `world_from_own`, in the world frame. None is the world
    /// frame itself. `usual`: the box that the model was trained in.
    pub fn in_world(&self, world_from_own: Option<&Isometry3<f64>>, usual: &Workspace) -> Self {
        let Some(pose) = world_from_own else { return *self };
        let workspace = self.workspace.in_world(Some(pose));
        let middle = |box_m: &Workspace, axis: usize| (box_m.min[axis] + box_m.max[axis]) / 2.0;
        let from_usual = |axis: usize| middle(&workspace, axis) - middle(usual, axis);
        let height = (HEIGHTS_PER_M * pose.translation.z).round() / HEIGHTS_PER_M;
        let origin = [from_usual(0), from_usual(1), height as f32 + self.origin[2]];
        Self { workspace, origin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{Translation3, UnitQuaternion};

    fn pose(x: f64, y: f64, z: f64, yaw: f64) -> Isometry3<f64> {
        let turn = UnitQuaternion::from_euler_angles(0.0, 0.0, yaw);
        Isometry3::from_parts(Translation3::new(x, y, z), turn)
    }

    fn own() -> Place {
        let workspace = Workspace { min: [0.2, -0.5, -0.1], max: [1.2, 0.5, 0.9] };
        Place { workspace, origin: [0.0, 0.0, 0.3] }
    }

    #[test]
    fn the_box_holds_what_was_asked_for_wherever_the_base_stands() {
        let own = own();
        for (i, yaw) in (0..20).map(|i| (f64::from(i), 0.37 * f64::from(i))) {
            let pose = pose(1.3 * i, -0.7 * i, 0.01 * i, yaw);
            let found = own.in_world(Some(&pose), &Workspace::default());
            found.workspace.validate().unwrap();
            for x in [0.2, 0.7, 1.2] {
                let inside = pose * Point3::new(x, 0.49, 0.1);
                assert!(found.workspace.contains(inside.coords.map(|x| x as f32).into()), "{i}");
            }
            // No more than that, turned, and a cell of the grid at either end.
            let widest = (0..2).map(|k| found.workspace.max[k] - found.workspace.min[k]);
            assert!(widest.fold(0.0, f32::max) < 2.0f32.sqrt() + 0.26, "{found:?}");
        }
    }

    #[test]
    fn it_stays_until_the_base_has_driven_on_and_what_the_model_sees_goes_with_it() {
        let (own, usual) = (own(), Workspace::default());
        let at = |x: f64| own.in_world(Some(&pose(x, 0.0, 0.0, 0.0)), &usual);
        assert_eq!(at(0.06), at(0.061));
        assert_eq!(at(0.06).origin[2], 0.3);
        let boxes: Vec<_> =
            (0..1000).map(|mm| at(0.001 * f64::from(mm)).workspace.min[0]).collect();
        let n_moves = boxes.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(n_moves, 8, "a metre, an eighth at a time");
        let center = |place: &Place| (place.workspace.min[0] + place.workspace.max[0]) / 2.0;
        for place in [at(0.0), at(7.0)] {
            assert!((center(&place) - place.origin[0] - 0.05).abs() < 1e-5, "{place:?}");
        }
    }

    #[test]
    fn corners_on_the_grid_stay_there() {
        let own = Place { workspace: Workspace { min: [-0.5; 3], max: [0.5; 3] }, ..own() };
        let found = own.workspace.in_world(Some(&pose(3.0, -2.0, 0.0, 0.0)));
        assert_eq!((found.min, found.max), ([2.5, -2.5, -0.5], [3.5, -1.5, 0.5]));
    }
}
