//! The tool's commands, one file each.

mod calibrate;
mod compare;
mod curve;
mod info;
mod intake;
mod label;
mod layers;
mod memory;
mod merge;
mod model_file;
mod numbers;
mod out_folder;
// Each user of it, the examples among them, takes a part.
mod outcome;
#[allow(dead_code)]
mod plot;
mod replay;
mod replay_args;
mod replay_folder;
mod say;
mod steps;
mod stop;
mod threads;
mod topics;
mod train;
mod train_end;
mod train_loop;
mod train_video;
mod train_worker;

use outcome::Outcome;
pub use say::say;

/// Predicts how the point cloud that a robot sees will move.
#[derive(clap::Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Info(info::Args),
    Replay(Box<replay::Args>),
    Label(Box<label::Args>),
    Merge(merge::Args),
    Train(Box<train::Args>),
    TrainVideo(Box<train_video::Args>),
    Calibrate(Box<calibrate::Args>),
    Compare(Box<compare::Args>),
}

impl Cli {
    /// Runs the chosen command.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Info(args) => info::run(&args).map(|()| Outcome::Done),
            Command::Replay(args) => replay::run(&args),
            Command::Label(args) => label::run(&args),
            Command::Merge(args) => merge::run(&args),
            Command::Train(args) => train::run(&args).map(|()| Outcome::Done),
            Command::TrainVideo(args) => train_video::run(&args).map(|()| Outcome::Done),
            Command::Calibrate(args) => calibrate::run(&args).map(|()| Outcome::Done),
            Command::Compare(args) => compare::run(&args).map(|()| Outcome::Done),
        }
    }
}
