//! What all peers compute: one model, its weights, the demo recording's cloud and a loss on it; as
//! one safetensors file, so that every process reads the same numbers.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, ensure};
use forecloud::base::geometry::Vec3;
use forecloud::base::random::{draw, uniform};
use forecloud::engine::graph::walks::WalkSeed;
use forecloud::engine::model::tokens::{N_CANDIDATES, Tokens};
use forecloud::engine::model::{InterlacerConfig, Layout, ModelConfig};
use forecloud::engine::ops::charbonnier::DELTA_M;
use forecloud::engine::ops::layer_norm;
use forecloud::engine::ops::linear_attention;
use forecloud::engine::ops::motion_head::MAX_RESIDUAL_M;
use forecloud::engine::step_graph::StepGraph;
use forecloud_train::adamw::AdamWConfig;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize_to_file};

use super::support::{Demo, LEARNING_RATE, LOSS_SCALE, Turning, weights};

/// Metadata key of the settings.
const SETTINGS_KEY: &str = "settings";

/// The model on a cloud whose points all are scene particles.
pub struct Problem {
    /// Sizes of the model.
    pub config: InterlacerConfig,
    /// Its flat weights.
    pub weights: Vec<f32>,
    /// Positions of the tokens in Morton order (m).
    pub positions: Vec<Vec3>,
    /// Features of the tokens `[n, n_features]`.
    pub features: Vec<f32>,
    /// Candidate motions of each point in each step of the pass `[n, steps_per_pass, N_CANDIDATES]` (m).
    pub candidates: Vec<Vec3>,
    /// True displacements `[n, steps_per_pass]` (m).
    pub targets: Vec<Vec3>,
    /// Weight of each point in the loss `[n, steps_per_pass]`: the same in all steps.
    pub point_weights: Vec<f32>,
}

impl Problem {
    /// `n_tokens` turning points of the demo's first cloud, and a model of width `width`, all other
    /// sizes the defaults.
    pub fn new(demo: &Demo, n_tokens: usize, width: usize) -> anyhow::Result<Self> {
        let model = ModelConfig { width, ..ModelConfig::default() };
        model.validate()?;
        Self::of(Turning::new(demo, n_tokens, &model)?, &model)
    }

    /// The same of these points.
    pub fn of(points: Turning, model: &ModelConfig) -> anyhow::Result<Self> {
        let (config, rollout) = (model.interlacer(), model.rollout());
        let Turning { state, targets } = points;
        let n_tokens = state.n_tokens();
        let mut tokens = Tokens::default();
        tokens.encode(&state, &rollout.tokens)?;
        let random = |i: usize| uniform(draw(1, 0, i as u64, 3));
        let in_steps = |i: usize| std::iter::repeat_n(i, model.steps_per_pass);
        let rows = || (0..n_tokens).flat_map(in_steps);
        Ok(Self {
            config,
            weights: weights(&Layout::new(config)),
            targets: rows().map(|i| targets[i]).collect(),
            point_weights: rows().map(|i| 0.05 + random(i)).collect(),
            positions: state.positions,
            features: tokens.features,
            candidates: tokens.candidates,
        })
    }

    /// Points.
    pub fn n_tokens(&self) -> usize {
        self.positions.len()
    }

    /// Points in each step of the pass: rows of the motion head.
    pub fn n_rows(&self) -> usize {
        self.targets.len()
    }

    /// Outputs of the model for each of them.
    pub fn n_row_outputs(&self) -> usize {
        self.config.n_outputs * self.n_tokens() / self.n_rows()
    }

    /// Graph and merged loads of the points, by row and by column.
    pub fn graph(&self) -> forecloud::Result<StepGraph> {
        let mut graph = StepGraph::default();
        let InterlacerConfig { k, n_hops, .. } = self.config;
        let mask = ModelConfig::default().mask;
        graph.rebuild(&self.positions, k, n_hops, &mask, WalkSeed::default())?;
        graph.transposed.rebuild(&graph.loads);
        Ok(graph)
    }

    /// Writes the file, with the merged loads for those that build no graph of their own, and the
    /// outputs that are `expected` of the model for those that hold their own to them.
    pub fn write(&self, path: &Path, expected: Option<&[f32]>) -> anyhow::Result<()> {
        let (n, loads) = (self.n_tokens(), self.graph()?.loads);
        let (mut starts, mut nodes, mut values) = (vec![0i32], Vec::new(), Vec::new());
        for row in (0..n).map(|i| loads.row(i)) {
            nodes.extend(row.nodes.iter().map(|&j| j as i32));
            values.extend_from_slice(row.loads);
            starts.push(nodes.len() as i32);
        }
        let (n_hops, n_entries) = (self.config.n_hops, nodes.len());
        let integers = |x: &[i32]| (Dtype::I32, x.iter().flat_map(|v| v.to_le_bytes()).collect());
        let mut tensors = vec![
            ("loads.starts".to_owned(), vec![n + 1], integers(&starts)),
            ("loads.nodes".to_owned(), vec![n_entries], integers(&nodes)),
            ("loads.values".to_owned(), vec![n_entries, n_hops + 1], floats(&values)),
        ];
        let n_rows = self.n_rows();
        let n_features = self.config.n_features;
        let mut float = |name: &str, shape: &[usize], values: &[f32]| {
            tensors.push((name.to_owned(), shape.to_vec(), floats(values)));
        };
        float("positions", &[n, 3], self.positions.as_flattened());
        float("features", &[n, n_features], &self.features);
        float("candidates", &[n_rows, N_CANDIDATES, 3], self.candidates.as_flattened());
        float("targets", &[n_rows, 3], self.targets.as_flattened());
        float("point_weights", &[n_rows], &self.point_weights);
        if let Some(expected) = expected {
            float("expected", &[n, self.config.n_outputs], expected);
        }
        for tensor in Layout::new(self.config).tensors {
            float(&tensor.name, &tensor.shape, tensor.span.of(&self.weights));
        }
        save(path, &tensors, Some(HashMap::from([(SETTINGS_KEY.into(), self.settings())])))
    }

    /// Everything that the peers must agree on besides the tensors, as JSON.
    fn settings(&self) -> String {
        serde_json::json!({
            "interlacer": self.config,
            "adamw": AdamWConfig::default(),
            "learning_rate": LEARNING_RATE,
            "loss_scale": LOSS_SCALE,
            "charbonnier_delta_m": DELTA_M,
            "max_residual_m": MAX_RESIDUAL_M,
            "attention_epsilon": linear_attention::EPSILON,
            "layer_norm_epsilon": layer_norm::EPSILON,
        })
        .to_string()
    }

    /// Reads a file that [`Problem::write`] wrote.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
        let (_, header) = SafeTensors::read_metadata(&bytes)?;
        let metadata = header.metadata().as_ref().and_then(|m| m.get(SETTINGS_KEY));
        let settings: serde_json::Value =
            serde_json::from_str(metadata.context("no problem file: no settings")?)?;
        let config: InterlacerConfig = serde_json::from_value(settings["interlacer"].clone())?;
        config.validate()?;
        let file = SafeTensors::deserialize(&bytes)?;
        let float = |name: &str| -> anyhow::Result<Vec<f32>> {
            let data = file.tensor(name).with_context(|| format!("tensor {name}"))?.data();
            Ok(data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
        };
        let vectors = |name: &str| -> anyhow::Result<Vec<Vec3>> {
            Ok(float(name)?.chunks_exact(3).map(|v| [v[0], v[1], v[2]]).collect())
        };
        let layout = Layout::new(config);
        let mut weights = vec![0.0; layout.n_params()];
        for tensor in &layout.tensors {
            let (to, from) = (tensor.span.of_mut(&mut weights), float(&tensor.name)?);
            ensure!(to.len() == from.len(), "tensor {} has another size", tensor.name);
            to.copy_from_slice(&from);
        }
        Ok(Self {
            config,
            weights,
            positions: vectors("positions")?,
            features: float("features")?,
            candidates: vectors("candidates")?,
            targets: vectors("targets")?,
            point_weights: float("point_weights")?,
        })
    }
}

/// Name, shape, and type with bytes.
pub type NamedTensor = (String, Vec<usize>, (Dtype, Vec<u8>));

/// Bytes of `values`.
pub fn floats(values: &[f32]) -> (Dtype, Vec<u8>) {
    (Dtype::F32, values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

/// Writes `tensors` as a safetensors file.
pub fn save(
    path: &Path,
    tensors: &[NamedTensor],
    metadata: Option<HashMap<String, String>>,
) -> anyhow::Result<()> {
    let views: Result<Vec<_>, _> = tensors
        .iter()
        .map(|(name, shape, (dtype, bytes))| {
            TensorView::new(*dtype, shape.clone(), bytes).map(|view| (name, view))
        })
        .collect();
    Ok(serialize_to_file(views?, metadata, path)?)
}
