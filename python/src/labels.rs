//! Particles of clouds, and where they go as the next frame shows.

use forecloud::vision::cloud::{Cloud, Workspace};
use forecloud::vision::particles::{Particles, Sampling};
use forecloud_train::flow_labels::{Flow, Labeler, Sight, Tracks, View};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::arrays::{self, input};
use crate::frame::boxed;
use crate::{errors, work};

type Floats<'py> = PyReadonlyArrayDyn<'py, f32>;

/// Draws particles of a cloud: see `forecloud.particles`.
#[pyfunction]
fn particles<'py>(
    py: Python<'py>,
    positions: Floats<'py>,
    colors: PyReadonlyArrayDyn<'py, u8>,
    sources: Option<PyReadonlyArrayDyn<'py, u32>>,
    n: usize,
    workspace: Option<[[f32; 3]; 2]>,
    draw: (u64, i64, usize),
) -> PyResult<Bound<'py, PyDict>> {
    let positions = arrays::points("positions", &positions)?;
    let n_points = positions.len() as isize;
    let (colors, _) = arrays::slice("colors", &colors, [n_points, 3])?.as_chunks::<3>();
    let sources = match &sources {
        Some(sources) => arrays::slice("sources", sources, [n_points])?.to_vec(),
        None => (0..positions.len() as u32).collect(),
    };
    let workspace = if workspace.is_some() { boxed(workspace)? } else { Workspace::default() };
    let (seed, stamp_ns, support_stride) = draw;
    let sampling = Sampling { seed, stamp_ns, workspace, support_stride };
    let mut cloud = Cloud::default();
    for ((position, color), source) in positions.into_iter().zip(colors).zip(sources) {
        if workspace.contains(position) {
            cloud.positions.push(position);
            cloud.colors.push(*color);
            cloud.sources.push(source);
        }
    }
    let drawn = work::run(py, |_| {
        let mut drawn = Particles::default();
        drawn.sample_thinned(&cloud, n.min(cloud.len()), &sampling);
        drawn
    })?;
    let dict = PyDict::new(py);
    dict.set_item("positions", arrays::rows(py, &drawn.positions)?)?;
    dict.set_item("colors", arrays::rows(py, &drawn.colors)?)?;
    dict.set_item("sources", PyArray1::from_vec(py, drawn.sources))?;
    dict.set_item("support_m", drawn.support_m)?;
    Ok(dict)
}

/// Particles of a frame as hindsight knows them: positions, colours, and points on the robot.
type FrameIn<'py> = (Floats<'py>, Floats<'py>, Option<Floats<'py>>);

fn view(number: usize, frame: &FrameIn<'_>) -> PyResult<(Particles, Vec<[f32; 3]>)> {
    let (positions, colors, robot) = frame;
    let positions = arrays::points(&format!("positions of frame {number}"), positions)?;
    let colors = arrays::points(&format!("colors of frame {number}"), colors)?;
    if colors.len() != positions.len() {
        let (n, got) = (positions.len(), colors.len());
        return Err(input(format!("colors of frame {number}: expected {n} rows, got {got}")));
    }
    let robot = robot.as_ref().map(|robot| arrays::points("robot", robot)).transpose()?;
    let mut cloud = Particles::default();
    cloud.sources.extend(0..positions.len() as u32);
    (cloud.positions, cloud.colors) = (positions, colors);
    Ok((cloud, robot.unwrap_or_default()))
}

/// Flows between frames one step apart, and the tracks of the first frame's points: see
/// `forecloud.hindsight`.
#[pyfunction]
fn hindsight<'py>(
    py: Python<'py>,
    frames: Vec<FrameIn<'py>>,
    links: Option<PyReadonlyArrayDyn<'py, u32>>,
) -> PyResult<Bound<'py, PyDict>> {
    if frames.len() < 2 {
        return Err(input(format!("hindsight: {} frames, at least 2 are needed", frames.len())));
    }
    let views = frames.iter().enumerate().map(|(number, frame)| view(number, frame));
    let views = views.collect::<PyResult<Vec<_>>>()?;
    let links = match &links {
        Some(links) => arrays::slice("links", links, [-1])?.to_vec(),
        None => vec![0; views[0].1.len()],
    };
    let fits = links.is_sorted() && links.last().is_none_or(|&last| (last as usize) < links.len());
    let is_wrong = |robot: &[[f32; 3]]| !robot.is_empty() && robot.len() != links.len();
    if !fits || views.iter().any(|(_, robot)| is_wrong(robot)) {
        return Err(input(
            "links: one for each point on the robot, ascending from 0, of frames with as many points"
                .into(),
        ));
    }
    let found = work::run(py, |stop| {
        let (mut labeler, mut flows) = (Labeler::default(), Vec::new());
        for pair in views.windows(2) {
            if stop.load(std::sync::atomic::Ordering::Relaxed) {
                break;
            }
            let [now, next] = [0, 1].map(|i| {
                let (cloud, robot) = &pair[i];
                View { cloud, common: cloud, robot }
            });
            let mut flow = Flow::default();
            let has_robot = !now.robot.is_empty() && !next.robot.is_empty();
            let links = if has_robot { &links[..] } else { &[] };
            labeler.find([now, next], links, false, &mut flow)?;
            flows.push(flow);
        }
        let sights = views.iter().zip(&flows).map(|((cloud, _), flow)| Sight::new(cloud, flow));
        let sights = sights.collect::<forecloud::Result<Vec<_>>>()?;
        let chosen: Vec<u32> = (0..views[0].0.len() as u32).collect();
        let mut tracks = Tracks::default();
        tracks.follow(&chosen, &sights);
        Ok((flows, tracks))
    })?;
    let (flows, tracks) = found.map_err(errors::of)?;
    let list = PyList::empty(py);
    for flow in flows {
        let dict = PyDict::new(py);
        dict.set_item("motions", arrays::rows(py, &flow.motions)?)?;
        dict.set_item("confidences", PyArray1::from_vec(py, flow.confidences))?;
        dict.set_item("bodies", PyArray1::from_vec(py, flow.body_of))?;
        list.append(dict)?;
    }
    let (n, n_steps) = (views[0].0.len(), tracks.positions.len());
    let positions: Vec<f32> = tracks.positions.iter().flatten().flatten().copied().collect();
    let confidences = tracks.confidences.concat();
    let dict = PyDict::new(py);
    dict.set_item("flows", list)?;
    dict.set_item("positions", PyArray1::from_vec(py, positions).reshape([n_steps, n, 3])?)?;
    dict.set_item("confidences", PyArray1::from_vec(py, confidences).reshape([n_steps, n])?)?;
    Ok(dict)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(particles, module)?)?;
    module.add_function(wrap_pyfunction!(hindsight, module)?)
}
