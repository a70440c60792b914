//! Boxes on a floor, ray by ray, as depth cameras see them.

use std::sync::Arc;

use forecloud::message::{CameraInfo, Header, Image, Stamp};
use forecloud::vision::frames::{CameraFrame, ColorView, Frame, View};
use nalgebra::{Isometry3, Point3, Vector3};
