//! The tool's commands, one file each.

mod compare;
mod info;
mod layers;
mod model_file;
mod replay;
mod replay_folder;
mod topics;
mod train;

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
    Train(Box<train::Args>),
    Compare(Box<compare::Args>),
}

impl Cli {
    /// Runs the chosen command.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Info(args) => info::run(&args),
            Command::Replay(args) => replay::run(&args),
            Command::Train(args) => train::run(&args),
            Command::Compare(args) => compare::run(&args),
        }
    }
}
