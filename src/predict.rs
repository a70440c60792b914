//! From a frame to the predicted motion of every particle: [`predictor`] is the way of the data on one
//! screen; what is certain without the model is [`known_motion`].

pub mod config;
pub mod contacts;
pub mod deadline;
pub mod history;
pub mod known_motion;
pub mod last_miss;
pub mod moving_camera;
pub mod moving_world;
pub mod objects;
pub mod observation;
pub mod occupied;
pub mod outlines;
pub mod prediction;
pub mod predictor;
pub mod rig;
pub mod robot_forecast;
pub mod robot_reach;
pub mod snapshot;
pub mod track_record;
