//! Layers of the linear transformer in the paper's efficient form (its equation (7)), outputs normalised
//! layer by layer as in its section 3.5: forward and backward.
//!
//! What goes through the layers: the graph M = B Bᵀ `[n, n]`, and the columns P and Y `[n, k]`, demands and
//! 0 at first; Y is the answer. A layer has ten numbers: M ← G M G, G = a I + b M (1 + α^R and α^V of the
//! paper), P ← r₁₁ P + r₁₂ Y + M (v₁₁ P + v₁₂ Y), Y ← r₂₁ P + r₂₂ Y + M (v₂₁ P + v₂₂ Y) (the blocks of
//! I + W^R and W^V, each a multiple of the identity); W^Q and W^K of the columns are 0, as in the lemmas.
//! Then M is divided by its trace and \[P, Y\] by its norm.
//!
//! All of this are functions of the Laplacian, so that it is learnt on numbers by eigenvector.

use super::trial::{DEMANDS, MODES, Modes, NODES, Task, Trial};
use nalgebra::DMatrix;

/// a, b, r by rows, v by rows.
pub type Layer = [f64; 10];

/// The layers and the unit of the graph: the first layer reads L / `unit`.
#[derive(Clone)]
pub struct Layers {
    pub layers: Vec<Layer>,
    pub unit: f64,
}

/// A graph and its demands by mode, and what the answers should be.
pub struct Example {
    /// Eigenvalues over the unit.
    pub m: Modes,
    /// Squares of the demands, summed.
    pub squares: Modes,
    pub along: Vec<Modes>,
    /// True answers of length one.
    pub wanted: Vec<Modes>,
}

impl Example {
    pub fn new(trial: &Trial, task: Task, unit: f64) -> Self {
        let wanted = |along: &Modes| {
            let answer: Modes =
                std::array::from_fn(|i| task.of_eigenvalue(trial.eigenvalues[i]) * along[i]);
            let norm = dot(&answer, &answer).sqrt();
            answer.map(|x| x / norm)
        };
        let squares = |i: usize| trial.along.iter().map(|along| along[i] * along[i]).sum();
        Self {
            m: trial.eigenvalues.map(|value| value / unit),
            squares: std::array::from_fn(squares),
            along: trial.along.clone(),
            wanted: trial.along.iter().map(wanted).collect(),
        }
    }
}

/// What goes through the layers, by mode: M's eigenvalues, and what P and Y have of the demands.
#[derive(Clone, Copy)]
struct State {
    m: Modes,
    p: Modes,
    y: Modes,
}

fn dot(a: &Modes, b: &Modes) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// What a layer makes before it is normalised.
fn raw(layer: &Layer, State { m, p, y }: &State) -> State {
    let &[a, b, r11, r12, r21, r22, v11, v12, v21, v22] = layer;
    State {
        m: std::array::from_fn(|i| m[i] * (a + b * m[i]).powi(2)),
        p: std::array::from_fn(|i| (r11 + v11 * m[i]) * p[i] + (r12 + v12 * m[i]) * y[i]),
        y: std::array::from_fn(|i| (r21 + v21 * m[i]) * p[i] + (r22 + v22 * m[i]) * y[i]),
    }
}

/// What M and \[P, Y\] are divided by.
fn sizes(raw: &State, squares: &Modes) -> [f64; 2] {
    let columns = |i: usize| squares[i] * (raw.p[i] * raw.p[i] + raw.y[i] * raw.y[i]);
    [raw.m.iter().sum::<f64>(), (0..MODES).map(columns).sum::<f64>().sqrt()]
}

impl Layers {
    /// Loss of one example; adds its gradient to `d_layers`. `states` is scratch.
    pub fn gradient(&self, of: &Example, states: &mut Vec<Kept>, d_layers: &mut [Layer]) -> f64 {
        states.clear();
        let mut state = State { m: of.m, p: [1.0; MODES], y: [0.0; MODES] };
        for layer in &self.layers {
            let raw = raw(layer, &state);
            let [trace, norm] = sizes(&raw, &of.squares);
            states.push(Kept { input: state, trace, norm });
            state = State {
                m: raw.m.map(|x| x / trace),
                p: raw.p.map(|x| x / norm),
                y: raw.y.map(|x| x / norm),
            };
        }
        let (loss, d_y) = answer_loss(&state.y, of);
        let mut d = State { m: [0.0; MODES], p: [0.0; MODES], y: d_y };
        let layers = self.layers.iter().zip(d_layers).zip(states.iter()).rev();
        for ((layer, d_layer), kept) in layers {
            d = backward(layer, kept, &state, &of.squares, &d, d_layer);
            state = kept.input;
        }
        loss
    }

    /// Answers `[n, k]`, by the layers themselves.
    pub fn answers(&self, trial: &Trial) -> DMatrix<f64> {
        let mut m = trial.laplacian.dense() / self.unit;
        let (mut p, mut y) = (trial.demands(), DMatrix::zeros(NODES, DEMANDS));
        for &[a, b, r11, r12, r21, r22, v11, v12, v21, v22] in &self.layers {
            let raw_p = &p * r11 + &y * r12 + &m * (&p * v11 + &y * v12);
            let raw_y = &p * r21 + &y * r22 + &m * (&p * v21 + &y * v22);
            let norm = (raw_p.norm_squared() + raw_y.norm_squared()).sqrt();
            (p, y) = (raw_p / norm, raw_y / norm);
            let g = DMatrix::identity(NODES, NODES) * a + &m * b;
            m = &g * m * &g;
            m /= m.trace();
        }
        y
    }
}

/// What the backward pass reads of a layer.
pub struct Kept {
    input: State,
    trace: f64,
    norm: f64,
}

/// Mean loss of the demands' answers, and its gradient by mode of y.
fn answer_loss(y: &Modes, of: &Example) -> (f64, Modes) {
    let (mut loss, mut d_y) = (0.0, [0.0; MODES]);
    for (along, wanted) in of.along.iter().zip(&of.wanted) {
        let answer: Modes = std::array::from_fn(|i| y[i] * along[i]);
        let norm = dot(&answer, &answer).sqrt().max(1e-300);
        let error: Modes = std::array::from_fn(|i| answer[i] / norm - wanted[i]);
        loss += dot(&error, &error) / DEMANDS as f64;
        // Along the answer there is no gradient; the error's part there is small, and known from it.
        let along_answer = dot(&error, &answer) / norm;
        for i in 0..MODES {
            let across = error[i] - along_answer * answer[i] / norm;
            d_y[i] += 2.0 * across * along[i] / (norm * DEMANDS as f64);
        }
    }
    (loss, d_y)
}

/// Gradient of a layer's input from that of its `output`; adds that of its numbers.
fn backward(
    layer: &Layer,
    kept: &Kept,
    output: &State,
    squares: &Modes,
    d: &State,
    d_layer: &mut Layer,
) -> State {
    let &[a, b, r11, r12, r21, r22, v11, v12, v21, v22] = layer;
    let State { m, p, y } = &kept.input;
    let along_m = dot(&d.m, &output.m);
    let along_columns = dot(&d.p, &output.p) + dot(&d.y, &output.y);
    let mut d_input = State { m: [0.0; MODES], p: [0.0; MODES], y: [0.0; MODES] };
    for i in 0..MODES {
        let (m, p, y) = (m[i], p[i], y[i]);
        let dm = (d.m[i] - along_m) / kept.trace;
        let dp = (d.p[i] - along_columns * squares[i] * output.p[i]) / kept.norm;
        let dy = (d.y[i] - along_columns * squares[i] * output.y[i]) / kept.norm;
        let g = a + b * m;
        let of_numbers = [
            2.0 * dm * m * g,
            2.0 * dm * m * m * g,
            dp * p,
            dp * y,
            dy * p,
            dy * y,
            dp * p * m,
            dp * y * m,
            dy * p * m,
            dy * y * m,
        ];
        d_layer.iter_mut().zip(of_numbers).for_each(|(sum, d)| *sum += d);
        d_input.p[i] = (r11 + v11 * m) * dp + (r21 + v21 * m) * dy;
        d_input.y[i] = (r12 + v12 * m) * dp + (r22 + v22 * m) * dy;
        d_input.m[i] =
            dm * (g * g + 2.0 * b * m * g) + dp * (v11 * p + v12 * y) + dy * (v21 * p + v22 * y);
    }
    d_input
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Family, TASKS, loss, trial};
    use super::*;

    /// Three layers with no number of the lemmas left.
    fn layers() -> Layers {
        let number = |at: usize| 0.6 + 0.5 * ((7 * at % 30) as f64).sin();
        let layer = |l: usize| std::array::from_fn(|at| number(10 * l + at));
        Layers { layers: (0..3).map(layer).collect(), unit: 90.0 }
    }

    /// What is learnt by eigenvector is what the layers do on the nodes.
    #[test]
    fn losses_by_mode_are_those_on_the_nodes() {
        for (index, &(task, _)) in TASKS.iter().enumerate() {
            for family in [Family::Full, Family::SkipLinks] {
                let (layers, trial) = (layers(), trial(family, 5, 1).unwrap());
                let example = Example::new(&trial, task, layers.unit);
                let by_mode = layers.gradient(&example, &mut Vec::new(), &mut [[0.0; 10]; 3]);
                let on_nodes = loss(&layers.answers(&trial), &trial.answers[index]);
                assert!((by_mode - on_nodes).abs() < 1e-6, "{task:?}: {by_mode}, {on_nodes}");
            }
        }
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        for (task, _) in TASKS {
            let (mut layers, trial) = (layers(), trial(Family::SkipLinks, 5, 2).unwrap());
            let example = Example::new(&trial, task, layers.unit);
            let mut gradient = [[0.0; 10]; 3];
            layers.gradient(&example, &mut Vec::new(), &mut gradient);
            for (l, at) in (0..3).flat_map(|l| (0..10).map(move |at| (l, at))) {
                let here = layers.layers[l][at];
                let [above, below] = [1e-5, -1e-5].map(|step| {
                    layers.layers[l][at] = here + step;
                    layers.gradient(&example, &mut Vec::new(), &mut [[0.0; 10]; 3])
                });
                layers.layers[l][at] = here;
                let (got, want) = (gradient[l][at], (above - below) / 2e-5);
                let tolerance = 1e-7 + 1e-6 * want.abs();
                assert!((got - want).abs() < tolerance, "{task:?}, {l}, {at}: {got}, not {want}");
            }
        }
    }
}
