//! Points in time.

use std::fmt;

const NANOS_PER_SEC: i64 = 1_000_000_000;

/// Nanoseconds since the epoch of the clock that stamped the message.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct Stamp(i64);

impl Stamp {
    /// From nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// From the two fields of `builtin_interfaces/msg/Time`; cannot overflow.
    pub const fn from_parts(sec: i32, nanosec: u32) -> Self {
        Self(sec as i64 * NANOS_PER_SEC + nanosec as i64)
    }

    /// From seconds, rounded to the nanosecond; saturates, and reads NaN as 0.
    pub fn from_secs(secs: f64) -> Self {
        Self((secs * NANOS_PER_SEC as f64).round() as i64)
    }

    /// Nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Seconds; exact to about 0.2 µs for today's dates, so prefer [`Stamp::secs_since`].
    pub fn secs(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC as f64
    }

    /// The fields `sec` and `nanosec` of `builtin_interfaces/msg/Time`, `sec` saturated to 32 bits.
    pub fn parts(self) -> (i32, u32) {
        let sec = self.0.div_euclid(NANOS_PER_SEC);
        let sec = sec.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        (sec, self.0.rem_euclid(NANOS_PER_SEC) as u32)
    }

    /// Seconds from `earlier` to this stamp; negative if this is the earlier one.
    pub fn secs_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / NANOS_PER_SEC as f64
    }

    /// This stamp moved by `secs` (rounded to the nanosecond, saturating).
    pub fn plus_secs(self, secs: f64) -> Self {
        Self(self.0.saturating_add(Self::from_secs(secs).0))
    }

    /// Nanoseconds between the two stamps, in either order.
    pub fn abs_diff(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }
}

impl fmt::Display for Stamp {
    /// Seconds with nine decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        let per_sec = NANOS_PER_SEC as u64;
        write!(f, "{sign}{}.{:09}", nanos / per_sec, nanos % per_sec)
    }
}
