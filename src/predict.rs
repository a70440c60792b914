//! From a frame to the predicted motion of every particle: [`predictor`] is the way of the data on one screen.

pub mod carried;
pub mod confidence;
pub mod config;
pub mod conformal;
pub mod deadline;
pub mod known;
pub mod observation;
pub mod prediction;
pub mod predictor;
pub mod rest;
pub mod situation;
