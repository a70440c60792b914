//! The ground floor: points, rigid motions, cells of space, and nearest neighbours. It knows nothing
//! of particles, robots or models, and imports nothing of the crate but errors, draws and vector code.
//!
//! Three searches, each for what it is fastest at: [`Neighbors`] (a grid) for all points of a cloud
//! at once, `Nearest` (in vectors, by brute force or leaving out boxes that are too far) for a few
//! thousand points and queries far from them, [`PointTree`] (kiddo) for single queries, for points
//! spread unevenly, and as the oracle of both.

mod cells;
mod forest;
mod nearest;
mod neighbors;
mod plane;
mod points;
mod rigid;
mod tree;

pub use cells::Cells;
pub(crate) use forest::Forest;
pub(crate) use nearest::Nearest;
pub use neighbors::Neighbors;
pub use plane::Plane;
pub use points::bounds;
pub use points::{Vec3, add, distance, dot, length, minus, plus, squared_distance};
pub use rigid::{Rigid, RigidMotion};
pub use rigid::{follow_links, follow_some_links};
pub use tree::PointTree;
