//! The option `device`, in the tool and in the library, with and without a driver.

#[path = "../../../src/engine/backend/cuda/standin.rs"]
mod standin;

use std::path::Path;
use std::process::{Command, Output};

use forecloud::engine::backend::Device;
use forecloud::engine::model::Model;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::robot::kinematics::Robot;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::recording::Recording;

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/tiny_push");
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/small.safetensors");

/// `forecloud replay` of a few particles on `device`, with the stand-in's folder to look for libcuda
/// in, or without.
fn replay(device: &str, machine: Option<&str>) -> Output {
    let mut command = command(device);
    if let Some(machine) = machine {
        command.env("LD_LIBRARY_PATH", standin::library().parent().unwrap());
        command.env("FORECLOUD_STANDIN", machine);
    }
    command.output().unwrap()
}

fn command(device: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
    command.args(["replay", "--horizon", "1", "--particles", "64", "--device", device, RECORDING]);
    command.env_remove("LD_LIBRARY_PATH");
    command
}

fn refused(device: &str, machine: Option<&str>) -> String {
    let output = replay(device, machine);
    assert_eq!(output.status.code(), Some(1), "an error, not a panic or an abort");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn machines_without_a_usable_gpu_are_told_so_and_auto_takes_the_cpu() {
    if standin::has_gpu() {
        println!("skipped: this machine has a GPU");
        return;
    }
    let on_cpu = replay("cpu", None);
    assert!(on_cpu.status.success());
    let cases = [
        (None, "no NVIDIA driver (libcuda.so) found: install it", false),
        (Some("no_device"), "no CUDA-capable device is detected: check nvidia-smi", false),
        (Some("old_driver"), "the driver is for CUDA 11.4, 12.2 or newer is needed", true),
        (Some("stub"), "stub library: install NVIDIA's driver", false),
    ];
    for (machine, told, has_card) in cases {
        let message = refused("cuda", machine);
        assert!(message.contains("cuda:0: ") && message.contains(told), "{machine:?}: {message}");
        assert!(!message.contains("panicked"), "{message}");
        let auto = replay("auto", machine);
        assert!(auto.status.success(), "{machine:?}");
        let note = String::from_utf8_lossy(&auto.stderr).into_owned();
        // Machines without a card need no note.
        assert_eq!(note.contains("device: cpu (cuda:0: "), has_card, "{note}");
        assert_eq!(note.contains(told), has_card, "{note}");
        assert_eq!(errors(&auto), errors(&on_cpu), "{machine:?}");
    }
    let message = refused_by_empty_libcuda();
    assert!(message.contains("cuda:0: libcuda lacks cu"), "{message}");
    assert!(!message.contains("panicked"), "{message}");
    let message = refused("cuda:77", Some(""));
    assert!(message.contains("cuda:77: the driver knows"), "{message}");
    assert_eq!(replay("tpu", None).status.code(), Some(2));
}

/// `forecloud evaluate` of a plan on `device`, on a machine without a driver.
fn evaluate(device: &str) -> Output {
    let recording = Recording::open(Path::new(RECORDING), FramesConfig::default()).unwrap();
    let urdf = recording.robot_description().unwrap().unwrap();
    let robot = Robot::from_urdf(&urdf, 64, "world").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [goal, plans] = ["goal.yaml", "plans.yaml"].map(|name| folder.path().join(name));
    let everything = "{min: [-2, -2, -2], max: [2, 2, 2]}";
    let reach = "{pose: {translation: [0.1, 0, 0], rotation: [0, 0, 0, 1]}}";
    std::fs::write(&goal, format!("select: {{region: {everything}}}\nreach: {reach}\n")).unwrap();
    // It goes there slowly, so within all limits.
    let joint = &robot.joint_names()[0];
    let plan = format!("{{joint_names: [{joint}], points: [{{time: 60, positions: [0.1]}}]}}");
    std::fs::write(&plans, format!("plans:\n  - {plan}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
    command.args(["evaluate", RECORDING, "--steps", "2", "--particles", "64", "--device", device]);
    command.arg("--goal").arg(&goal).arg("--plans").arg(&plans).env_remove("LD_LIBRARY_PATH");
    command.output().unwrap()
}

#[test]
fn plans_are_rolled_out_on_the_cpu_where_auto_finds_no_gpu() {
    if standin::has_gpu() {
        println!("skipped: this machine has a GPU");
        return;
    }
    let [on_cpu, auto, cuda] = ["cpu", "auto", "cuda"].map(evaluate);
    let stderr_of = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        on_cpu.status.success() && auto.status.success(),
        "{}{}",
        stderr_of(&on_cpu),
        stderr_of(&auto)
    );
    assert_eq!(on_cpu.stdout, auto.stdout);
    assert!(!stderr_of(&on_cpu).contains("device"), "{}", stderr_of(&on_cpu));
    let missing = "cuda:0: no NVIDIA driver (libcuda.so) found: install it";
    assert!(stderr_of(&auto).contains(&format!("device: cpu ({missing}")), "{}", stderr_of(&auto));
    assert_eq!(cuda.status.code(), Some(1));
    assert!(stderr_of(&cuda).contains(missing) && cuda.stdout.is_empty(), "{}", stderr_of(&cuda));
}

/// With a libcuda that has no functions.
fn refused_by_empty_libcuda() -> String {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libcuda.so");
    let mut compiler = Command::new(std::env::var("CXX").unwrap_or("c++".into()));
    compiler.args(["-shared", "-x", "c++", "/dev/null", "-o"]).arg(&library);
    assert!(compiler.status().unwrap().success());
    let mut command = command("cuda");
    let output = command.env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

/// The report without its times.
fn errors(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().filter(|line| !line.contains(" ms")).map(str::to_owned).collect()
}

fn predictions(device: Device) -> Vec<Prediction> {
    let model = Model::load(Path::new(MODEL)).unwrap();
    let config =
        PredictorConfig { horizon: 1, n_particles: 100, device, ..PredictorConfig::default() };
    let mut predictor = Predictor::new(model, config).unwrap();
    assert_eq!(predictor.backend().name() == "cpu", device == Device::Cpu);
    let recording = Recording::open(Path::new(RECORDING), FramesConfig::default()).unwrap();
    predictor.set_robot(&recording.robot_description().unwrap().unwrap(), "world").unwrap();
    let mut predictions = Vec::new();
    let step = |frame, _| -> forecloud::Result<()> {
        // Two will do: the stand-in takes seconds for each.
        if predictions.len() < 2 {
            predictions.extend(predictor.step(&frame)?.cloned());
        }
        Ok(())
    };
    recording.play(step).unwrap();
    assert_eq!(predictor.backend().fallback(), None);
    predictions
}

#[test]
fn the_shipped_model_predicts_the_same_on_a_gpu() {
    standin::load();
    let (on_cpu, on_gpu) = (predictions(Device::Cpu), predictions(Device::Auto));
    assert_eq!((on_cpu.len(), on_gpu.len()), (2, 2));
    for (cpu, gpu) in on_cpu.iter().zip(&on_gpu) {
        assert_eq!(cpu.particles.positions, gpu.particles.positions);
        for (cpu, gpu) in cpu.displacements.iter().flatten().zip(gpu.displacements.iter().flatten())
        {
            for axis in 0..3 {
                let off_m = (cpu[axis] - gpu[axis]).abs();
                assert!(off_m < 1e-5, "{cpu:?} m on the CPU, {gpu:?} m on the GPU");
            }
        }
    }
}
