//! Frames: of a recording, or made of arrays.

use std::sync::Arc;

use forecloud::message::{
    CameraInfo, Header, Image, JointTrajectory, PointCloud2, Stamp, TrajectoryPoint,
};
use forecloud::robot::kinematics::Mount;
use forecloud::vision::camera::Camera;
use forecloud::vision::cloud::{Cloud, MAX_PIXELS, Workspace};
use forecloud::vision::frames::{
    CameraFrame, ColorView, Frame as Inner, Joints, MAX_CAMERAS, RobotState, View,
};
use forecloud_bag::recording::BodyIds;
use numpy::ndarray::ArrayView1;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::arrays::{self, Pose, input};
use crate::errors::{self, Kind, raise};
use crate::work;

/// All that is known of one time; never changes, so that arrays may show its memory.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Frame {
    pub inner: Arc<Inner>,
    pub ids: Option<Arc<BodyIds>>,
}

/// A depth image: millimetres, or metres.
#[derive(FromPyObject)]
enum Depth<'py> {
    Millimetres(PyReadonlyArrayDyn<'py, u16>),
    Metres(PyReadonlyArrayDyn<'py, f32>),
}

/// A camera as `forecloud/recording.py` hands it over.
#[derive(FromPyObject)]
#[expect(clippy::large_enum_variant, reason = "there are a few of them, for the time of a call")]
enum CameraIn<'py> {
    Images(ImagesIn<'py>),
    Points(PointsIn<'py>),
}

/// A cloud in the frame of `pose`: positions `[n, 3]` (m) and colours `[n, 3]`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PointsIn<'py> {
    number: usize,
    points: PyReadonlyArrayDyn<'py, f32>,
    colors: Option<PyReadonlyArrayDyn<'py, u8>>,
    pose: Pose,
}

/// Images of a camera.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ImagesIn<'py> {
    number: usize,
    depth: Depth<'py>,
    intrinsics: [f64; 9],
    distortion: (String, Vec<f64>),
    pose: Pose,
    color: Option<PyReadonlyArrayDyn<'py, u8>>,
    /// Where the colour image has a calibration of its own: that, its distortion, and its camera's pose
    /// (points of the depth camera into the colour camera's frame).
    color_camera: Option<([f64; 9], (String, Vec<f64>), Pose)>,
}

/// Names and positions of joints, and where the root and free links are.
type RobotIn = (Vec<String>, Vec<f64>, Option<Pose>, Vec<Pose>);
/// Start (ns), names, times from the start (ns) and positions `[n, joints]`.
pub type PlanIn = (i64, Vec<String>, Vec<i64>, Vec<Vec<f64>>);

#[pymethods]
impl Frame {
    /// A frame of arrays.
    #[new]
    fn new(
        stamp_ns: i64,
        cameras: Vec<CameraIn<'_>>,
        robot: Option<RobotIn>,
        plans: Vec<PlanIn>,
        workspace: Option<Pose>,
    ) -> PyResult<Self> {
        let stamp = Stamp::from_nanos(stamp_ns);
        let numbers: Vec<usize> = cameras.iter().map(CameraIn::number).collect();
        if cameras.is_empty() || !numbers.is_sorted_by(|a, b| a < b) {
            return Err(input(format!(
                "cameras: their numbers must ascend, one at least, not {numbers:?}"
            )));
        }
        if numbers.last().is_some_and(|&last| last >= MAX_CAMERAS) {
            return Err(input(format!("cameras: numbers must be below {MAX_CAMERAS}")));
        }
        let cameras = cameras.into_iter().map(|camera| camera.into_frame(stamp));
        let inner = Inner {
            stamp,
            cameras: cameras.collect::<PyResult<_>>()?,
            robot: robot.map(robot_state).transpose()?,
            plan: plans.into_iter().map(|given| plan("plan", given)).collect::<PyResult<_>>()?,
            robot_description: None,
            world_from_workspace: workspace
                .map(|pose| arrays::isometry("workspace", &pose))
                .transpose()?,
        };
        Ok(Self { inner: Arc::new(inner), ids: None })
    }

    #[getter]
    fn stamp_ns(&self) -> i64 {
        self.inner.stamp.nanos()
    }

    /// A dictionary a camera; arrays of bytes show the frame's memory.
    fn cameras<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(slf.py());
        for camera in &slf.get().inner.cameras {
            list.append(camera_dict(slf, camera)?)?;
        }
        Ok(list)
    }

    /// Names and positions of the joints, poses of the root and of free links; none without a robot.
    fn robot(&self) -> Option<RobotIn> {
        let RobotState { joints, mount } = self.inner.robot.as_ref()?;
        let root = mount.root.as_ref().map(arrays::pose);
        let free = mount.free.iter().map(arrays::pose).collect();
        Some((joints.names.to_vec(), joints.positions.clone(), root, free))
    }

    /// The plans.
    fn plans(&self) -> Vec<PlanIn> {
        self.inner.plan.iter().map(|plan| plan_out(plan)).collect()
    }

    /// Whether each pixel's body is known.
    #[getter]
    fn has_bodies(&self) -> bool {
        self.ids.is_some()
    }

    /// Number of the body at each of `sources`.
    fn bodies<'py>(
        &self,
        py: Python<'py>,
        sources: PyReadonlyArrayDyn<'py, u32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(ids) = &self.ids else {
            return Err(raise(
                Kind::State,
                "this frame has no truth: its recording holds none of it",
            ));
        };
        let sources = arrays::slice("sources", &sources, [-1])?;
        let found: Vec<u16> = sources.iter().map(|&source| ids.id(source)).collect();
        Ok(PyArray1::from_vec(py, found).into_any())
    }

    /// Positions, colours and sources of the cloud in a box.
    fn cloud<'py>(
        &self,
        py: Python<'py>,
        workspace: Option<[[f32; 3]; 2]>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let workspace = boxed(workspace)?;
        let frame = &*self.inner;
        let cloud = work::run(py, move |_| {
            let mut cloud = Cloud::default();
            cloud.from_cameras(&frame.cameras, &workspace).map(|_| cloud)
        })?;
        let cloud = cloud.map_err(errors::of)?;
        let sources = PyArray1::from_slice(py, &cloud.sources).into_any();
        Ok((arrays::rows(py, &cloud.positions)?, arrays::rows(py, &cloud.colors)?, sources))
    }
}

/// The box, checked; all that was measured without one.
pub fn boxed(workspace: Option<[[f32; 3]; 2]>) -> PyResult<Workspace> {
    let Some([min, max]) = workspace else { return Ok(Workspace::EVERYWHERE) };
    let workspace = Workspace { min, max };
    workspace.validate().map_err(errors::of)?;
    Ok(workspace)
}

impl CameraIn<'_> {
    fn number(&self) -> usize {
        match self {
            Self::Images(images) => images.number,
            Self::Points(points) => points.number,
        }
    }

    fn into_frame(self, stamp: Stamp) -> PyResult<CameraFrame> {
        match self {
            Self::Images(images) => images.into_frame(stamp),
            Self::Points(points) => points.into_frame(stamp),
        }
    }
}

impl PointsIn<'_> {
    fn into_frame(self, stamp: Stamp) -> PyResult<CameraFrame> {
        let name = format!("camera {}", self.number);
        let (points, _) = arrays::slice("points", &self.points, [-1, 3])?.as_chunks::<3>();
        let colors = self.colors.as_ref().map(|colors| {
            let n = points.len() as isize;
            arrays::slice("colors of the points", colors, [n, 3])
                .map(|flat| flat.as_chunks::<3>().0)
        });
        if points.len() as u64 > MAX_PIXELS {
            let n = points.len();
            return Err(input(format!("points: {n} of them, at most {MAX_PIXELS} are supported")));
        }
        let world_from_camera = arrays::isometry(&format!("pose of {name}"), &self.pose)?;
        let header = Header { stamp, frame_id: name };
        let cloud = PointCloud2::of_points(header, points, colors.transpose()?);
        let view = View::Points(cloud.map_err(errors::of)?);
        Ok(CameraFrame { camera: self.number, view, world_from_camera })
    }
}

impl ImagesIn<'_> {
    fn into_frame(self, stamp: Stamp) -> PyResult<CameraFrame> {
        let name = format!("camera {}", self.number);
        let header = Header { stamp, frame_id: name.clone() };
        let (encoding, size, bytes) = match &self.depth {
            Depth::Millimetres(depth) => {
                let pixels = arrays::slice("depth", depth, [-1, -1])?;
                let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
                ("16UC1", size(depth.shape())?, bytes)
            }
            Depth::Metres(depth) => {
                let pixels = arrays::slice("depth", depth, [-1, -1])?;
                let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
                ("32FC1", size(depth.shape())?, bytes)
            }
        };
        let depth = image(&header, encoding, size, bytes);
        let info = Arc::new(info(&header, size, self.intrinsics, self.distortion)?);
        let color = self.color.map(|color| {
            let shape = color.shape();
            let pixels = arrays::slice("color", &color, [-1, -1, 3])?.to_vec();
            let size = self::size(&shape[..2])?;
            let color_camera = self.color_camera.map(|(k, distortion, pose)| {
                let own = self::info(&header, size, k, distortion)?;
                let isometry = arrays::isometry("color_from_depth", &pose)?;
                PyResult::Ok((Arc::new(own), Some(isometry)))
            });
            let (info, color_from_depth) =
                color_camera.transpose()?.unwrap_or_else(|| (info.clone(), None));
            let image = image(&header, "rgb8", size, pixels);
            PyResult::Ok(ColorView { image, info, color_from_depth })
        });
        let view = View::Depth { depth, info, color: color.transpose()? };
        let world_from_camera = arrays::isometry(&format!("pose of {name}"), &self.pose)?;
        Ok(CameraFrame { camera: self.number, view, world_from_camera })
    }
}

/// Width and height of an image of so many rows and columns.
fn size(shape: &[usize]) -> PyResult<[u32; 2]> {
    let &[height, width] = shape else {
        return Err(input("an image has rows and columns".to_owned()));
    };
    let n_pixels = height.saturating_mul(width) as u64;
    if n_pixels == 0 || n_pixels > MAX_PIXELS {
        return Err(input(format!(
            "an image of {height} x {width} pixels: 1 to {MAX_PIXELS} are supported"
        )));
    }
    Ok([width as u32, height as u32])
}

fn image(header: &Header, encoding: &str, [width, height]: [u32; 2], data: Vec<u8>) -> Image {
    let step = data.len() as u32 / height;
    let (header, encoding) = (header.clone(), encoding.to_owned());
    Image { header, height, width, encoding, is_bigendian: false, step, data }
}

fn info(
    header: &Header,
    [width, height]: [u32; 2],
    k: [f64; 9],
    (distortion_model, d): (String, Vec<f64>),
) -> PyResult<CameraInfo> {
    let p = [k[0], k[1], k[2], 0.0, k[3], k[4], k[5], 0.0, k[6], k[7], k[8], 0.0];
    let r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
    let info = CameraInfo { header: header.clone(), height, width, distortion_model, d, k, r, p };
    Camera::new(&info).map_err(errors::of)?;
    Ok(info)
}

fn robot_state((names, positions, root, free): RobotIn) -> PyResult<RobotState> {
    if names.len() != positions.len() {
        let (n, got) = (names.len(), positions.len());
        return Err(input(format!("joints: expected {n} positions, got {got}")));
    }
    if let Some(at) = positions.iter().position(|x| !x.is_finite()) {
        return Err(input(format!("joints: '{}' is at {}, not finite", names[at], positions[at])));
    }
    let root = root.map(|root| arrays::isometry("pose of the robot's root", &root)).transpose()?;
    let free = free.iter().map(|pose| arrays::isometry("pose of a free link", pose));
    let mount = Mount { root, free: free.collect::<PyResult<_>>()? };
    Ok(RobotState { joints: Joints { names: names.into(), positions }, mount })
}

/// A plan as it goes out.
pub fn plan_out(plan: &JointTrajectory) -> PlanIn {
    let times = plan.points.iter().map(|point| point.time_from_start_nanos).collect();
    let positions = plan.points.iter().map(|point| point.positions.clone()).collect();
    (plan.header.stamp.nanos(), plan.joint_names.clone(), times, positions)
}

/// A plan as it comes in; `name` names it in errors.
pub fn plan(
    name: &str,
    (start_ns, joint_names, times, rows): PlanIn,
) -> PyResult<Arc<JointTrajectory>> {
    let wrong = |problem: String| Err(raise(Kind::Robot, format!("{name}: {problem}")));
    if times.len() != rows.len() {
        return wrong(format!("{} times for {} points", times.len(), rows.len()));
    }
    if times.first().is_some_and(|&first| first < 0) || !times.is_sorted_by(|a, b| a < b) {
        return wrong("times must ascend from 0".into());
    }
    for row in &rows {
        if row.len() != joint_names.len() || !row.iter().all(|x| x.is_finite()) {
            let n = joint_names.len();
            return wrong(format!("each point needs a finite position for each of {n} joints"));
        }
    }
    let point =
        |(time_from_start_nanos, positions)| TrajectoryPoint { positions, time_from_start_nanos };
    let points = times.into_iter().zip(rows).map(point).collect();
    let header = Header { stamp: Stamp::from_nanos(start_ns), frame_id: String::new() };
    Ok(Arc::new(JointTrajectory { header, joint_names, points }))
}

fn camera_dict<'py>(
    frame: &Bound<'py, Frame>,
    camera: &CameraFrame,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(frame.py());
    dict.set_item("number", camera.camera)?;
    dict.set_item("pose", arrays::pose(&camera.world_from_camera))?;
    dict.set_item("stamp_ns", camera.stamp().nanos())?;
    match &camera.view {
        View::Points(cloud) => dict.set_item("points", point_arrays(frame.py(), cloud)?)?,
        View::Depth { depth, info, color } => {
            dict.set_item("depth", image_dict(frame, depth)?)?;
            dict.set_item("intrinsics", info.k)?;
            dict.set_item("distortion", (&info.distortion_model, &info.d))?;
            if let Some(ColorView { image, info, color_from_depth }) = color {
                dict.set_item("color", image_dict(frame, image)?)?;
                if let Some(color_from_depth) = color_from_depth {
                    let distortion = (&info.distortion_model, &info.d);
                    let camera = (info.k, distortion, arrays::pose(color_from_depth));
                    dict.set_item("color_camera", camera)?;
                }
            }
        }
    }
    Ok(dict)
}

/// An image; its bytes are those of the frame, which they keep.
fn image_dict<'py>(frame: &Bound<'py, Frame>, image: &Image) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(frame.py());
    let view = ArrayView1::from(&image.data[..]);
    // SAFETY: the bytes are in the frame's `Arc`, never change (the class is frozen), and the array keeps
    // the frame; it is made read-only before anybody sees it.
    let data = unsafe { PyArray1::borrow_from_array(&view, frame.clone().into_any()) };
    data.readwrite().make_nonwriteable();
    dict.set_item("data", data)?;
    dict.set_item("height", image.height)?;
    dict.set_item("width", image.width)?;
    dict.set_item("step", image.step)?;
    dict.set_item("encoding", &image.encoding)?;
    dict.set_item("is_bigendian", image.is_bigendian)?;
    dict.set_item("frame_id", &image.header.frame_id)?;
    Ok(dict)
}

type Arrays<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Positions and colours of the measured points of a cloud, in its own frame.
fn point_arrays<'py>(py: Python<'py>, cloud: &PointCloud2) -> PyResult<Arrays<'py>> {
    let (mut positions, mut colors) = (Vec::new(), Vec::new());
    cloud.for_each(|_, position, color| {
        positions.push(position);
        colors.push(color);
    });
    Ok((arrays::rows(py, &positions)?, arrays::rows(py, &colors)?))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Frame>()
}
