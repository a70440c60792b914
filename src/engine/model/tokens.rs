//! The tokens of one pass: scene particles now, their history, and the robot's kinematic particles at
//! three times; their input features and the candidate motions of each step of the pass.
//!
//! Order: `[scene | history | kinematic, three times]`: one step back, now and one step ahead, or in
//! passes of several steps now, in their middle and at their end.

mod contacts;
mod encodings;
mod features;
mod flight;

use rayon::prelude::*;

use crate::Result;
use crate::base::geometry::{Nearest, RigidMotion, Vec3, add, follow_some_links, minus};
use crate::engine::rollout_input::StepState;
use crate::vision::motion::MOTION_SCALE_M;
use contacts::Contacts;
use features::{
    AHEAD_DIRECTION, BODY, COLOR, DIRECTION, KIND, NEAR_MOTION, NEARNESS, ROBOT_MOTION, VELOCITY,
    VELOCITY_KNOWN, encode_motion, encode_nearness, encode_octaves, encode_position,
    nearness_gradient, octaves_gradient, position_gradient,
};

pub use encodings::Encodings;
pub(super) use features::places;
pub use features::{N_FEATURES, TokenConfig, n_features};
use flight::Flight;

/// Gravity, in m/s² along world z (REP 103: z up).
const GRAVITY_M_S2: f32 = -9.81;
/// Candidate motions a scene particle: rest, as before, with the nearest robot link, free fall.
pub const N_CANDIDATES: usize = 4;

/// Origin and length that positions are told relative to.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// Centre of the workspace, in the world frame (m).
    pub center_m: Vec3,
    /// Half the workspace's side (m).
    pub half_side_m: f32,
}

/// What a model is told of its particles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inputs {
    /// As the papers have it, and no more: places, colours, times, and the robot's particles. No motion
    /// that was estimated, no bodies, no nearness to the robot, and of the candidate motions rest alone,
    /// so that the model's own motion is all it moves by.
    Paper,
    /// As models have it that are not the papers': motions and bodies that were estimated, the robot's plan and
    /// nearness; places to the centimetre; how the nearest link of the robot moved in the step before (who
    /// moved with it is held by it); and what touches the particle's body in each step, as far as straight
    /// ways and free fall tell. Free fall ends where the body lands.
    Second,
}

/// Encoded tokens of one pass.
#[derive(Debug, Default, Clone)]
pub struct Tokens {
    /// Scene particles, which are the first tokens.
    pub n_scene: usize,
    /// Positions of all tokens, for the graph (m).
    pub positions: Vec<Vec3>,
    /// Features `[n_tokens, n_features]`.
    pub features: Vec<f32>,
    /// Candidate motions of the scene particles `[n, steps_per_pass, N_CANDIDATES]` (m).
    pub candidates: Vec<Vec3>,
    /// Nearest point of the robot of each scene and history particle, now and after each step.
    nearest: Vec<Vec<u32>>,
    robot: Nearest,
    /// Whether each link has the nearest point now of some particle.
    carriers: Vec<bool>,
    /// Motion of each such link from now to one step back, and to each step ahead.
    links_back: Vec<RigidMotion>,
    links_ahead: Vec<Vec<RigidMotion>>,
    contacts: Contacts,
    flight: Flight,
}

/// Gradients of one pass's scene, history and velocities.
#[derive(Debug, Default, Clone)]
pub struct StateGradients {
    /// Of the scene positions.
    pub positions: Vec<Vec3>,
    /// Of the velocities.
    pub velocities: Vec<Vec3>,
    /// Of the history's positions.
    pub history_positions: Vec<Vec3>,
}

/// The link that is nearest to a point now, and how it moves.
#[derive(Clone, Copy)]
struct Carrier<'a> {
    tokens: &'a Tokens,
    /// None without a robot.
    link: Option<usize>,
}

impl Carrier<'_> {
    /// Motion of the point `p` of it in step `j` of the pass.
    fn motion(&self, p: &Vec3, j: usize) -> Vec3 {
        let Some(link) = self.link else { return [0.0; 3] };
        let since_now = |j: usize| self.tokens.links_ahead[j][link].motion_of(p);
        let there = since_now(j);
        if j == 0 { there } else { minus(&there, &since_now(j - 1)) }
    }

    /// Gradient of the point from that of its motion in step `j`.
    fn gradient(&self, d_motion: &Vec3, j: usize) -> Vec3 {
        let Some(link) = self.link else { return [0.0; 3] };
        let since_now = |j: usize| self.tokens.links_ahead[j][link].gradient(d_motion);
        let there = since_now(j);
        if j == 0 { there } else { minus(&there, &since_now(j - 1)) }
    }

    /// Motion of the point in the step before.
    fn past(&self, p: &Vec3) -> Vec3 {
        let back = self.link.map(|link| self.tokens.links_back[link].motion_of(p));
        back.map_or([0.0; 3], |back| back.map(|b| -b))
    }
}

impl Tokens {
    /// Encodes `state` for a pass of `config`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if the state's vectors do not belong together, or the robot's do not
    /// reach the end of the pass; with encodings as [`crate::engine::registry::EncodingSpec::encode`].
    pub fn encode(&mut self, state: &StepState, config: &TokenConfig) -> Result<()> {
        state.check(config.steps_per_pass)?;
        let stride = state.stride();
        self.n_scene = state.positions.len();
        self.positions.clear();
        self.positions.extend_from_slice(&state.positions);
        self.positions.extend_from_slice(&state.history_positions);
        for row in config.token_rows() {
            self.positions.extend(state.kinematic[row].iter().step_by(stride));
        }
        self.features.resize(state.n_tokens() * config.n_features(), 0.0);
        self.candidates
            .resize(state.positions.len() * config.steps_per_pass * N_CANDIDATES, [0.0; 3]);
        let rows = &state.kinematic[..config.steps_per_pass + 2];
        if config.inputs == Inputs::Paper {
            self.encode_alone(state, config);
            return self.encode_graph(config);
        }
        self.find_nearest(state, rows);
        self.follow_links(state, rows);
        let mut features = std::mem::take(&mut self.features);
        let mut candidates = std::mem::take(&mut self.candidates);
        self.flight.find(state, config);
        let of_particles = candidates.par_chunks_mut(config.steps_per_pass * N_CANDIDATES);
        let of_particles = of_particles.with_min_len(256).enumerate();
        of_particles.for_each(|(i, candidates)| self.propose(state, config, i, candidates));
        self.contacts.find(state, config, &self.nearest, &candidates);
        let rows = features.par_chunks_mut(config.n_features()).with_min_len(256).enumerate();
        rows.for_each(|(token, row)| self.encode_token(state, config, token, row));
        (self.features, self.candidates) = (features, candidates);
        self.encode_graph(config)
    }

    /// Encodes what [`Inputs::Paper`] tells; all else is 0.
    fn encode_alone(&mut self, state: &StepState, config: &TokenConfig) {
        let (n, h, k) = (state.positions.len(), state.history_positions.len(), state.n_kinematic());
        self.candidates.fill([0.0; 3]);
        self.features.fill(0.0);
        let rows = self.features.chunks_exact_mut(config.n_features());
        for (token, (row, p)) in rows.zip(&self.positions).enumerate() {
            encode_position(row, p, config.frame);
            let (kind, color) = match token {
                _ if token < n => (0, Some(&state.colors[token])),
                _ if token < n + h => (1, Some(&state.history_colors[token - n])),
                _ => (2 + (token - n - h) / k, None),
            };
            row[KIND + kind] = 1.0;
            if let Some(color) = color {
                row[COLOR..COLOR + 3].copy_from_slice(&color.map(|c| c - 0.5));
            }
        }
    }

    /// Fills a token's row.
    fn encode_token(&self, state: &StepState, config: &TokenConfig, token: usize, row: &mut [f32]) {
        let (n, h) = (state.positions.len(), state.history_positions.len());
        let p = &self.positions[token];
        row.fill(0.0);
        encode_position(row, p, config.frame);
        let more = config.more_at();
        if let Some(more) = more {
            encode_octaves(&mut row[more..], p, config.frame);
        }
        if token >= n + h {
            return self.encode_kinematic(state, config, token - n - h, row);
        }
        let i = token;
        self.encode_robot(state, config, i, row);
        let colors = if i < n { &state.colors[i] } else { &state.history_colors[i - n] };
        row[COLOR..COLOR + 3].copy_from_slice(&colors.map(|c| c - 0.5));
        row[KIND + usize::from(i >= n)] = 1.0;
        if i < n {
            encode_motion(row, VELOCITY, &state.velocities[i]);
            row[VELOCITY_KNOWN] = state.velocity_known[i];
            if let Some(body) = state.bodies.get(i) {
                row[BODY..BODY + body.len()].copy_from_slice(body);
            }
            self.contacts.encode(state, config, i, row);
        }
    }

    /// Fills the row of a kinematic token, the `index`-th of all times.
    fn encode_kinematic(
        &self,
        state: &StepState,
        config: &TokenConfig,
        index: usize,
        row: &mut [f32],
    ) {
        let (time, j) = (index / state.n_kinematic(), index % state.n_kinematic());
        row[KIND + 2 + time] = 1.0;
        let at = |row: usize| &state.kinematic[row][j * state.stride()];
        let of_token = config.token_rows()[time];
        // Of now and later the way ahead; in longer passes the way that led there.
        let (from, to) = match (config.steps_per_pass, of_token) {
            (1, 0) => (0, 1),
            (1, _) => (1, 2),
            (_, row) => (row - 1, row),
        };
        encode_motion(row, VELOCITY, &minus(at(to), at(from)));
        row[VELOCITY_KNOWN] = 1.0;
        row[NEARNESS] = 1.0;
        for step in 0..config.steps_per_pass {
            let motion = minus(at(step + 2), at(step + 1));
            let row = &mut row[config.step_at(step)..];
            encode_motion(row, 0, &motion);
            encode_motion(row, NEAR_MOTION - ROBOT_MOTION, &motion);
        }
        if let Some(past) = config.past_at() {
            encode_motion(row, past, &minus(at(1), at(0)));
        }
    }

    /// Where the robot's nearest point is and how near, now and after each step; and how the link
    /// moves that is nearest now.
    fn encode_robot(&self, state: &StepState, config: &TokenConfig, i: usize, row: &mut [f32]) {
        let nearest = self.nearest.iter().map(|nearest| nearest[i] as usize);
        let (p, carrier) = (&self.positions[i], self.carrier(state, i));
        if carrier.link.is_none() {
            return;
        }
        for (time, nearest) in nearest.enumerate() {
            let offset = minus(p, &state.kinematic[time + 1][nearest]);
            let at = match time.checked_sub(1) {
                None => DIRECTION,
                Some(step) => config.step_at(step) + AHEAD_DIRECTION - ROBOT_MOTION,
            };
            encode_nearness(row, at, &offset);
        }
        let nearness = row[NEARNESS];
        for step in 0..config.steps_per_pass {
            let motion = carrier.motion(p, step);
            let row = &mut row[config.step_at(step)..];
            encode_motion(row, 0, &motion);
            encode_motion(row, NEAR_MOTION - ROBOT_MOTION, &motion.map(|m| nearness * m));
        }
        if let Some(past) = config.past_at() {
            encode_motion(row, past, &carrier.past(p));
        }
    }

    /// The candidate motions of particle `i` in each step of the pass.
    fn propose(&self, state: &StepState, config: &TokenConfig, i: usize, candidates: &mut [Vec3]) {
        let (p, carrier) = (&state.positions[i], self.carrier(state, i));
        let v = *state.extrapolated_motion.get(i).unwrap_or(&state.velocities[i]);
        let fall = GRAVITY_M_S2 * config.step_secs * config.step_secs;
        let body = state.body_of.get(i).and_then(|&body| state.body_motions.get(body as usize));
        let (mut body, mut at, mut v) = (body.copied().flatten(), *p, v);
        for (step, candidates) in candidates.chunks_exact_mut(N_CANDIDATES).enumerate() {
            // Its body goes on to turn; where none is known, all goes on straight.
            if let Some(motion) = body.as_mut().filter(|_| step > 0) {
                *motion = motion.again();
                v = motion.motion_of(&at);
            }
            add(&mut at, &v);
            candidates[0] = [0.0; 3];
            candidates[1] = v;
            candidates[2] = carrier.motion(p, step);
            let fallen = [v[0], v[1], v[2] + (step + 1) as f32 * fall];
            candidates[3] = self.flight.motion(state, i, step).unwrap_or(fallen);
        }
    }

    fn carrier(&self, state: &StepState, i: usize) -> Carrier<'_> {
        let nearest = self.nearest[0][i] as usize;
        let link = state.kinematic_links.get(nearest).map(|&link| link as usize);
        Carrier { tokens: self, link }
    }

    fn find_nearest(&mut self, state: &StepState, rows: &[Vec<Vec3>]) {
        let others = &self.positions[..state.positions.len() + state.history_positions.len()];
        self.nearest.resize_with(rows.len() - 1, Vec::new);
        for (time, robot) in rows[1..].iter().enumerate() {
            let (before, from_here) = self.nearest.split_at_mut(time);
            let nearest = &mut from_here[0];
            match before.last() {
                // What was nearest is near: the robot moves little in a step.
                Some(before) => nearest.clone_from(before),
                // As a rule of the pass before, or of another plan's.
                None => nearest.resize(others.len(), 0),
            }
            // Behind a plan's end the robot stands still.
            if time > 0 && *robot == rows[time] {
                continue;
            }
            self.robot.rebuild(robot);
            let robot = &self.robot;
            let chunks = nearest.par_chunks_mut(64).zip(others.par_chunks(64));
            chunks.for_each(|(nearest, positions)| {
                robot.find_near(nearest.iter_mut().zip(positions));
            });
        }
    }

    fn follow_links(&mut self, state: &StepState, rows: &[Vec<Vec3>]) {
        let (links, now) = (&state.kinematic_links, &rows[1]);
        // Most links are nobody's nearest.
        self.carriers.clear();
        self.carriers.resize(links.last().map_or(0, |&last| last as usize + 1), false);
        for &nearest in &self.nearest[0] {
            if let Some(&link) = links.get(nearest as usize) {
                self.carriers[link as usize] = true;
            }
        }
        let follow = |ahead: &[Vec3], motions: &mut Vec<RigidMotion>| {
            follow_some_links(links, now, ahead, |link| self.carriers[link], motions);
        };
        follow(&rows[0], &mut self.links_back);
        self.links_ahead.resize_with(rows.len() - 2, Vec::new);
        for (step, ahead) in rows[2..].iter().enumerate() {
            let (before, from_here) = self.links_ahead.split_at_mut(step);
            match before.last() {
                Some(before) if *ahead == rows[step + 1] => from_here[0].clone_from(before),
                _ => follow(ahead, &mut from_here[0]),
            }
        }
    }

    /// From the gradients of features and candidates to those of the state; what touches bodies and the
    /// graph of encodings are held constant. What it gives for velocities is of use where there is no
    /// extrapolated motion.
    pub fn backward(
        &self,
        state: &StepState,
        config: &TokenConfig,
        d_features: &[f32],
        d_candidates: &[Vec3],
        out: &mut StateGradients,
    ) {
        let (n, h) = (state.positions.len(), state.history_positions.len());
        out.positions.resize(n, [0.0; 3]);
        out.velocities.resize(n, [0.0; 3]);
        out.history_positions.resize(h, [0.0; 3]);
        if config.inputs == Inputs::Paper {
            return self.backward_alone(config, d_features, out);
        }
        let of_particle = config.steps_per_pass * N_CANDIDATES;
        let scene_and_history = out.positions.iter_mut().chain(&mut out.history_positions);
        for (i, d) in scene_and_history.enumerate() {
            let d_candidates =
                if i < n { &d_candidates[i * of_particle..][..of_particle] } else { &[] };
            *d = self.position_gradient(state, config, i, d_features, d_candidates);
        }
        for (i, d) in out.velocities.iter_mut().enumerate() {
            let g = &d_features[i * config.n_features() + VELOCITY..][..3];
            *d = std::array::from_fn(|axis| g[axis] / MOTION_SCALE_M);
            for candidates in d_candidates[i * of_particle..][..of_particle].chunks(N_CANDIDATES) {
                add(d, &candidates[1]);
                // Where a body lands is held constant.
                if !self.flight.knows(state, i) {
                    add(d, &candidates[3]);
                }
            }
        }
    }

    /// [`Tokens::backward`] of what [`Inputs::Paper`] tells.
    fn backward_alone(&self, config: &TokenConfig, d_features: &[f32], out: &mut StateGradients) {
        out.velocities.fill([0.0; 3]);
        let width = config.n_features();
        let rows = self.features.chunks_exact(width).zip(d_features.chunks_exact(width));
        let positions = out.positions.iter_mut().chain(&mut out.history_positions);
        positions.zip(rows).for_each(|(d, (x, g))| *d = position_gradient(x, g, config.frame));
    }

    /// Gradient of the position of scene or history particle `i`.
    fn position_gradient(
        &self,
        state: &StepState,
        config: &TokenConfig,
        i: usize,
        d_features: &[f32],
        d_candidates: &[Vec3],
    ) -> Vec3 {
        let row = i * config.n_features()..(i + 1) * config.n_features();
        let (x, g) = (&self.features[row.clone()], &d_features[row]);
        let mut d = position_gradient(x, g, config.frame);
        if let Some(more) = config.more_at() {
            add(&mut d, &octaves_gradient(&x[more..], &g[more..], config.frame));
        }
        let carrier = self.carrier(state, i);
        if carrier.link.is_none() {
            return d;
        }
        let offset = |time: usize| {
            let nearest = self.nearest[time][i] as usize;
            minus(&self.positions[i], &state.kinematic[time + 1][nearest])
        };
        let mut d_nearness = 0.0;
        for step in 0..config.steps_per_pass {
            let at = config.step_at(step);
            let (x_step, g_step) = (&x[at..], &g[at..]);
            let ahead = AHEAD_DIRECTION - ROBOT_MOTION;
            add(&mut d, &nearness_gradient(x_step, g_step, ahead, 0.0, &offset(step + 1)));
            let near = &g_step[NEAR_MOTION - ROBOT_MOTION..][..3];
            d_nearness += (0..3).map(|axis| near[axis] * x_step[axis]).sum::<f32>();
            // The motion with the link turns with the place on it.
            let mut d_motion: Vec3 =
                std::array::from_fn(|a| (g_step[a] + x[NEARNESS] * near[a]) / MOTION_SCALE_M);
            if let Some(d_candidate) = d_candidates.get(step * N_CANDIDATES + 2) {
                add(&mut d_motion, d_candidate);
            }
            add(&mut d, &carrier.gradient(&d_motion, step));
        }
        add(&mut d, &nearness_gradient(x, g, DIRECTION, d_nearness, &offset(0)));
        if let (Some(past), Some(link)) = (config.past_at(), carrier.link) {
            let d_past = std::array::from_fn(|axis| -g[past + axis] / MOTION_SCALE_M);
            add(&mut d, &self.links_back[link].gradient(&d_past));
        }
        d
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::engine::ops::check::numbers;

    pub const FRAME: Frame = Frame { center_m: [0.05, 0.0, 0.3], half_side_m: 0.5 };
    pub const ONE: TokenConfig = TokenConfig {
        frame: FRAME,
        step_secs: 0.1,
        steps_per_pass: 1,
        inputs: Inputs::Second,
        encodings: Encodings::None,
        k: 3,
    };
    pub const THREE: TokenConfig = TokenConfig { steps_per_pass: 3, ..ONE };

    /// A seeded scene of `n` particles, `h` of history and `k` kinematic ones.
    pub fn state(n: usize, h: usize, k: usize, seed: u64) -> StepState {
        let cloud = |m: usize, scale: f32, salt: u64| -> Vec<Vec3> {
            let x = numbers(3 * m, seed * 100 + salt);
            x.chunks_exact(3).map(|c| [scale * c[0], scale * c[1], scale * c[2]]).collect()
        };
        let now = cloud(k, 0.2, 5);
        // Ahead in steps that differ, for passes of up to three.
        let ahead = |step: u64| -> Vec<Vec3> {
            let motions = cloud(k, 0.02 * step as f32, 5 + step);
            now.iter().zip(motions).map(|(p, m)| [p[0] + m[0], p[1] + m[1], p[2] + m[2]]).collect()
        };
        StepState {
            positions: cloud(n, 0.2, 1),
            velocities: cloud(n, 0.02, 2),
            extrapolated_motion: Vec::new(),
            bodies: Vec::new(),
            body_of: Vec::new(),
            body_motions: Vec::new(),
            support_m: None,
            velocity_known: vec![1.0; n],
            colors: cloud(n, 0.3, 3),
            history_positions: cloud(h, 0.2, 4),
            history_colors: cloud(h, 0.3, 7),
            kinematic: vec![cloud(k, 0.2, 18), now.clone(), ahead(1), ahead(2), ahead(3)],
            kinematic_links: (0..k as u32).map(|i| i / 4).collect(),
            kinematic_stride: 2,
        }
    }

    #[test]
    fn gradients_of_the_state_are_finite_differences() {
        let encodings = crate::engine::lab::encodings::BOTH;
        let encoded = TokenConfig { encodings, ..THREE };
        for config in [ONE, THREE, TokenConfig { inputs: Inputs::Paper, ..THREE }, encoded] {
            check_gradients(&config);
        }
    }

    fn check_gradients(config: &TokenConfig) {
        let mut at = state(6, 4, 5, 1);
        // Less of the fine octaves, whose slopes are steeper than the difference's step is short.
        let mut d_features = numbers(at.n_tokens() * config.n_features(), 2);
        if let Some(more) = config.more_at() {
            for row in d_features.chunks_exact_mut(config.n_features()) {
                row[more..config.past_at().unwrap()].iter_mut().for_each(|g| *g *= 0.1);
            }
        }
        let d_candidates: Vec<Vec3> = numbers(6 * config.steps_per_pass * N_CANDIDATES * 3, 3)
            .chunks_exact(3)
            .map(|c| [c[0], c[1], c[2]])
            .collect();
        let objective = |state: &StepState| -> f64 {
            let mut tokens = Tokens::default();
            tokens.encode(state, config).unwrap();
            let dot = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            dot(&tokens.features, &d_features)
                + dot(tokens.candidates.as_flattened(), d_candidates.as_flattened())
        };
        let (mut tokens, mut gradients) = (Tokens::default(), StateGradients::default());
        tokens.encode(&at, config).unwrap();
        tokens.backward(&at, config, &d_features, &d_candidates, &mut gradients);
        type Pick = fn(&mut StepState) -> &mut Vec<Vec3>;
        let parts: [(Pick, &Vec<Vec3>); 3] = [
            (|s| &mut s.positions, &gradients.positions),
            (|s| &mut s.velocities, &gradients.velocities),
            (|s| &mut s.history_positions, &gradients.history_positions),
        ];
        let step = 1e-3f32;
        for (pick, gradient) in parts {
            for (i, gradient) in gradient.iter().enumerate() {
                for (axis, &got) in gradient.iter().enumerate() {
                    let original = pick(&mut at)[i][axis];
                    pick(&mut at)[i][axis] = original + step;
                    let above = objective(&at);
                    pick(&mut at)[i][axis] = original - step;
                    let below = objective(&at);
                    pick(&mut at)[i][axis] = original;
                    let numeric = (above - below) / f64::from(2.0 * step);
                    let got = f64::from(got);
                    assert!((got - numeric).abs() < 0.02 * numeric.abs() + 0.6, "{got} {numeric}");
                }
            }
        }
    }

    /// Motion, bodies and the robot's plan change nothing of what the papers' model is told of the scene.
    #[test]
    fn the_papers_inputs_are_places_colours_and_times_alone() {
        let config = TokenConfig { inputs: Inputs::Paper, ..THREE };
        let encoded = |state: &StepState| {
            let mut tokens = Tokens::default();
            tokens.encode(state, &config).unwrap();
            tokens
        };
        let at = state(6, 4, 6, 1);
        let told = encoded(&at);
        assert!(told.candidates.as_flattened().iter().all(|&c| c == 0.0));
        let mut other = at.clone();
        other.velocities.fill([0.01; 3]);
        other.velocity_known.fill(0.0);
        other.bodies = vec![[0.5; crate::vision::motion::N_BODY_FEATURES]; 6];
        assert_eq!(encoded(&other).features, told.features);
        other.kinematic[3][0] = [0.3; 3];
        let (a, b) = (encoded(&other), &told);
        let width = config.n_features();
        assert_eq!(a.features[..10 * width], b.features[..10 * width]);
        assert_ne!(a.features, b.features, "the robot's particles are told");
        other.colors[0] = [0.9; 3];
        assert_ne!(encoded(&other).features[..width], told.features[..width]);
    }

    #[test]
    fn works_without_a_robot_and_refuses_shapes() {
        let mut state = state(6, 4, 0, 1);
        let mut tokens = Tokens::default();
        tokens.encode(&state, &ONE).unwrap();
        assert_eq!(tokens.features.len(), 10 * ONE.n_features());
        assert!(tokens.features.iter().all(|f| f.is_finite()));
        // Numbers of bodies are held to those of particles before anything is allocated for them.
        state.body_of = vec![0, 1, 2, 3, 4, u32::MAX - 1];
        let message = tokens.encode(&state, &ONE).unwrap_err().to_string();
        assert!(message.contains("bodies"), "{message}");
        state.body_of.clear();
        state.colors.pop();
        assert!(tokens.encode(&state, &ONE).is_err());
    }

    #[test]
    fn links_that_are_no_links_are_refused() {
        let mut tokens = Tokens::default();
        for links in [vec![0; 4], vec![0, 0, 1, 0, 1], vec![0, 0, 0, 0, u32::MAX]] {
            let state = StepState { kinematic_links: links, ..state(6, 4, 5, 1) };
            let message = tokens.encode(&state, &ONE).unwrap_err().to_string();
            assert!(message.contains("links of the robot's points"), "{message}");
        }
    }
}
