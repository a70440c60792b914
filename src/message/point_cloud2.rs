//! `sensor_msgs/msg/PointCloud2`.

mod layout;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::cdr::CdrReader;
use super::header::Header;
use super::image::MAX_PIXELS;
use crate::base::error::Result;
use layout::{Field, Layout, Rows};

/// Colour of the points of a cloud without colours: grey.
const GREY: u32 = 0x80_80_80;

/// A cloud of points, organised as an image or not.
///
/// Decoding looks at the layout and sizes alone: the points stay where they lie in the message, and are
/// read when they are asked for. So a cloud that is passed over costs nothing, and no point is copied
/// before it is used.
#[derive(Clone)]
pub struct PointCloud2 {
    /// Time, and the frame of the points.
    pub header: Header,
    /// Rows; 1 if the cloud is not organised.
    pub height: u32,
    /// Points of a row.
    pub width: u32,
    /// Where points lie in `message`; none in a cloud without points.
    rows: Option<Rows>,
    /// The serialized message, or the points alone of a cloud that came as none.
    message: Arc<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    /// x, y, z, metres; anything where nothing was measured.
    position: [f32; 3],
    /// 0xAARRGGBB; A is anything.
    color: u32,
}

impl PointCloud2 {
    /// Decodes a serialized message of any layout, and keeps it: one that is borrowed is copied.
    ///
    /// `x`, `y`, `z` may be FLOAT32 or FLOAT64, in any order, at any offset. Colours are read from
    /// `rgb` or `rgba` (packed 0xAARRGGBB: FLOAT32, UINT32 or INT32), else from `r`, `g`, `b`
    /// (UINT8; or FLOAT32 from 0 to 1, as RViz reads them). What `is_dense` says is not relied on.
    ///
    /// # Errors
    /// [`crate::Error::Message`] if it is truncated, a field is missing, double, or of another
    /// type, sizes don't belong together, or there are more than
    /// [`super::MAX_PIXELS`] points.
    pub fn decode<'a>(bytes: impl Into<Cow<'a, [u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        let mut reader = CdrReader::new(&bytes, "sensor_msgs/msg/PointCloud2")?;
        let header = Header::read(&mut reader)?;
        let height = reader.u32("height")?;
        let width = reader.u32("width")?;
        let fields = read_fields(&mut reader)?;
        let big_endian = reader.u8("is_bigendian")? != 0;
        let point_step = reader.u32("point_step")?;
        let row_step = reader.u32("row_step")?;
        let data = reader.bytes("data")?;
        let start = reader.offset() - data.len();
        reader.u8("is_dense")?;
        let mut rows = None;
        if width > 0 && height > 0 {
            let layout = Layout::new(&fields, big_endian, point_step);
            let found = layout
                .and_then(|layout| Rows::new(layout, start, data.len(), [width, height], row_step));
            rows = Some(found.map_err(|(field, problem)| reader.error(field, problem))?);
        }
        reader.finish()?;
        Ok(Self { header, height, width, rows, message: Arc::new(bytes.into_owned()) })
    }

    /// A cloud of points of a program's own (m, in the header's frame), in one row; rows that are not finite
    /// or zero were not measured. `colors`: red, green, blue of each; none for a grey cloud.
    ///
    /// # Errors
    /// [`crate::Error::Message`] for other numbers of colours than of points, or more than
    /// [`super::MAX_PIXELS`] points.
    pub fn of_points(
        header: Header,
        positions: &[[f32; 3]],
        colors: Option<&[[u8; 3]]>,
    ) -> Result<Self> {
        const POINT_STEP: u32 = 16;
        let error = |(field, problem): (&'static str, String)| crate::Error::Message {
            message_type: "sensor_msgs/msg/PointCloud2",
            field,
            offset: 0,
            problem,
        };
        let n = positions.len();
        if let Some(got) = colors.map(<[_]>::len).filter(|&got| got != n) {
            return Err(error(("rgb", format!("{got} colours of {n} points"))));
        }
        if n as u64 > MAX_PIXELS {
            let problem = format!("{n} points: at most {MAX_PIXELS} are supported");
            return Err(error(("width", problem)));
        }
        let field = |name, offset| Field { name, offset, datatype: Field::FLOAT32, count: 1 };
        let mut fields = vec![field("x", 0), field("y", 4), field("z", 8)];
        fields.extend(colors.map(|_| field("rgb", 12)));
        let mut bytes = Vec::with_capacity(n * POINT_STEP as usize);
        for (i, position) in positions.iter().enumerate() {
            position.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
            let [r, g, b] = colors.map_or([0; 3], |colors| colors[i]);
            bytes.extend([b, g, r, 0]);
        }
        let layout = Layout::new(&fields, false, POINT_STEP);
        let size = [n as u32, 1];
        let rows = layout.and_then(|layout| Rows::new(layout, 0, bytes.len(), size, 0));
        let rows = if n == 0 { None } else { Some(rows.map_err(error)?) };
        Ok(Self { header, height: 1, width: size[0], rows, message: Arc::new(bytes) })
    }

    /// Whether the cloud has colours; without, all points are grey (128, 128, 128).
    pub fn has_color(&self) -> bool {
        self.rows.is_some_and(|rows| rows.has_color())
    }

    /// Calls `f` with index (`row * width + column`), x y z (metres, the header's frame) and red,
    /// green, blue of each measured point, row by row.
    ///
    /// A point is measured if x, y, z are finite and not all zero.
    pub fn for_each(&self, f: impl FnMut(u32, [f32; 3], [u8; 3])) {
        self.for_each_of(0..self.rows.map_or(0, |rows| rows.len()), f);
    }

    /// As [`PointCloud2::for_each`], of the points of these numbers that there are.
    pub fn for_each_of(&self, range: Range<usize>, mut f: impl FnMut(u32, [f32; 3], [u8; 3])) {
        let Some(rows) = self.rows else { return };
        rows.for_each_of(&self.message, range, |i, point| {
            if point.is_measured() {
                let [_, r, g, b] = point.color.to_be_bytes();
                f(i, point.position, [r, g, b]);
            }
        });
    }
}

/// Number, position and colour of each measured point.
type Measured = Vec<(u32, [f32; 3], [u8; 3])>;

impl PointCloud2 {
    fn measured(&self) -> Measured {
        let mut points = Vec::new();
        self.for_each(|i, position, color| points.push((i, position, color)));
        points
    }
}

/// Equal are clouds of the same points, whatever their layouts; where nothing was measured, nothing is
/// compared.
impl PartialEq for PointCloud2 {
    fn eq(&self, other: &Self) -> bool {
        let told = |cloud: &Self| (cloud.has_color(), cloud.height, cloud.width, cloud.measured());
        self.header == other.header && told(self) == told(other)
    }
}

impl fmt::Debug for PointCloud2 {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("PointCloud2")
            .field("header", &self.header)
            .field("height", &self.height)
            .field("width", &self.width)
            .field("has_color", &self.has_color())
            .field("points", &self.measured())
            .finish()
    }
}

impl Point {
    /// Whether all numbers are finite and one is not zero: on their bits without the sign, of which
    /// infinity has the least that are not finite (a fifth faster than on the numbers).
    fn is_measured(&self) -> bool {
        const INFINITY: u32 = f32::INFINITY.to_bits() << 1;
        let [x, y, z] = self.position.map(|x| x.to_bits() << 1);
        x.max(y).max(z) < INFINITY && (x | y | z) != 0
    }
}

/// The list `fields`, with the names where they lie.
fn read_fields<'a>(reader: &mut CdrReader<'a>) -> Result<Vec<Field<'a>>> {
    let count = reader.count(Field::MIN_BYTES, "fields")?;
    let mut fields = Vec::with_capacity(count);
    for _ in 0..count {
        fields.push(Field {
            name: reader.str("fields[].name")?,
            offset: reader.u32("fields[].offset")?,
            datatype: reader.u8("fields[].datatype")?,
            count: reader.u32("fields[].count")?,
        });
    }
    Ok(fields)
}
