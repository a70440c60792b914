use forecloud::config::PredictorConfig;
use forecloud::frames::FramesConfig;
use forecloud::geometry::*;
use forecloud::kinematics::MeshSearch;
use forecloud::labels::*;
use forecloud::model::ModelConfig;
use forecloud::observation::{Observation, Observer};
use forecloud::particles::CpuSampler;
use forecloud::recording::{BodyKind, Recording, carry};
use std::collections::BTreeMap;
fn main() -> anyhow::Result<()> {
    let mut total: BTreeMap<String, Vec<[f32; 6]>> = BTreeMap::new();
    let mut stat: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let (mut ms, mut nf, mut track_ms, mut ntr) = (0.0, 0, 0.0, 0);
    for path in std::env::args().skip(1) {
        let task = path.rsplit('/').next().unwrap().rsplitn(2, '_').nth(1).unwrap().to_string();
        let recording = Recording::open(path.as_ref(), FramesConfig::default())?;
        let truth = recording.truth().unwrap();
        let model = ModelConfig::default();
        let workspace = recording.place(&model.workspace)?.map(|p| p.workspace);
        let config = PredictorConfig { workspace, ..PredictorConfig::default() };
        let mut observer = Observer::new(model, config);
        observer.set_meshes(MeshSearch::default().beside(recording.bag().path()));
        if let Some(urdf) = recording.robot_description()? { observer.set_robot(&urdf, "world")?; }
        let links: Vec<u32> = observer.robot().iter().flat_map(|r| r.links()).collect();
        let mut sampler = CpuSampler::default();
        let mut frames: Vec<(Observation, Vec<u16>, Vec<nalgebra::Isometry3<f64>>)> = vec![];
        recording.play(|frame, ids| {
            if frames.last().is_some_and(|(l, ..)| frame.stamp.secs_since(l.stamp) < 0.075) { return Ok(()); }
            let mut now = Observation::default();
            observer.observe(&frame, model.n_motion, &mut sampler, &mut now)?;
            let (Some(ids), Some(poses)) = (ids, truth.poses(now.stamp)) else { return Ok(()) };
            let ids = now.particles.sources.iter().map(|&s| ids.id(s)).collect();
            frames.push((now, ids, poses.to_vec()));
            Ok::<(), forecloud::Error>(())
        })?;
        let mut labeler = Labeler::default();
        let mut flows: Vec<Option<Flow>> = vec![];
        for pair in frames.windows(2) {
            let secs = pair[1].0.stamp.secs_since(pair[0].0.stamp);
            if secs > 0.125 || pair[0].0.kinematic.len() != pair[1].0.kinematic.len() { flows.push(None); continue; }
            let view = |k: usize| View { cloud: &pair[k].0.particles, robot: &pair[k].0.kinematic, on_links: &pair[k].0.on_links };
            let t = std::time::Instant::now();
            let mut flow = Flow::default();
            labeler.flow([view(0), view(1)], &links, &mut flow)?;
            if std::env::var("MERGE").is_ok() { flow.merge(); }
            flows.push(Some(flow));
            ms += t.elapsed().as_secs_f64() * 1e3; nf += 1;
        }
        let trees: Vec<PointTree> = frames.iter().map(|f| PointTree::new(&f.0.particles.positions).unwrap()).collect();
        let h = 10;
        for t in (0..frames.len().saturating_sub(h)).step_by(3) {
            if flows[t..t + h].iter().any(|f| f.is_none()) { continue; }
            let clouds: Vec<_> = (0..h).map(|k| &frames[t + k].0.particles).collect();
            let tr: Vec<_> = (0..h).map(|k| &trees[t + k]).collect();
            let fl: Vec<_> = (0..h).map(|k| flows[t + k].as_ref().unwrap()).collect();
            let mut tracks = Tracks::default();
            let t0 = std::time::Instant::now();
            tracks.follow(&clouds, &tr, &fl, std::env::var("FREE").is_err());
            track_ms += t0.elapsed().as_secs_f64() * 1e3; ntr += 1;
            for (slot, k) in [(0, 1usize), (1, 5), (2, 10)] {
                for i in 0..frames[t].0.particles.len() {
                    let p = &frames[t].0.particles.positions[i];
                    let id = frames[t].1[i];
                    let to = carry(*p, id, &frames[t].2, &frames[t + k].2);
                    let prev = carry(*p, id, &frames[t].2, &frames[t + k - 1].2);
                    let e = length(&minus(&tracks.positions[k - 1][i], &to));
                    let c = tracks.confidences[k - 1][i];
                    match truth.kind(id) {
                        BodyKind::Object if length(&minus(&to, &prev)) > 0.002 => total.entry(format!("{task}")).or_default().push([e, length(&minus(&to, p)), c, slot as f32, 0.0, 0.0]),
                        kind => { let s = stat.entry(format!("{kind:?} {k}")).or_default(); s.0 += e as f64; s.1 += 1.0; }
                    }
                }
            }
        }
    }
    let mut all = vec![];
    for (task, v) in &total {
        all.extend(v.iter().copied());
        tell(task, v);
    }
    tell("all", &all);
    for (k, s) in stat { println!("{k}: error {:.2} mm", 1e3 * s.0 / s.1); }
    println!("{:.1} ms a pair", ms / nf as f64);
    println!("{:.1} ms a track of 10", track_ms / ntr as f64);
    Ok(())
}
fn tell(name: &str, all: &[[f32; 6]]) {
    print!("{name:14}");
    for slot in 0..3 {
        let v: Vec<_> = all.iter().filter(|r| r[3] == slot as f32).collect();
        let stat = |v: &[&[f32; 6]]| { let n = v.len() as f32; let e = v.iter().map(|r| r[0]).sum::<f32>() / n; let m = v.iter().map(|r| r[1]).sum::<f32>() / n; (n, e * 1e3, m * 1e3, e / m) };
        let (n, e, m, r) = stat(&v);
        let good: Vec<_> = v.iter().copied().filter(|r| r[2] > 0.5).collect();
        let (gn, ge, gm, gr) = stat(&good);
        print!(" | {e:.1}/{m:.0} {r:.3}, sure {:.2}: {ge:.1}/{gm:.0} {gr:.3}", gn / n);
    }
    println!();
}
