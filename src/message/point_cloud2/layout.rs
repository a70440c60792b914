//! Where positions and colours lie in the bytes of a point.

use std::ops::Range;

use super::super::image::MAX_PIXELS;
use super::{GREY, Point};

/// Field names, and characters of one, that an error message shows at most.
const MAX_NAMES: usize = 16;

/// A part of the message, and what is wrong with it.
pub(super) type Problem = (&'static str, String);

/// `sensor_msgs/msg/PointField`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) name: &'a str,
    pub(super) offset: u32,
    pub(super) datatype: u8,
    pub(super) count: u32,
}

impl Field<'_> {
    /// Fewest bytes of one: the name's length, offset, datatype and count.
    pub(super) const MIN_BYTES: usize = 4 + 4 + 1 + 4;

    const TYPE_NAMES: [&'static str; 8] =
        ["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "FLOAT32", "FLOAT64"];
    const UINT8: u8 = 2;
    const INT32: u8 = 5;
    const UINT32: u8 = 6;
    pub(super) const FLOAT32: u8 = 7;
    const FLOAT64: u8 = 8;

    /// Name and type, for error messages.
    fn describe(&self) -> String {
        let name = format!("`{:.MAX_NAMES$}`", self.name);
        match Self::TYPE_NAMES.get(usize::from(self.datatype).wrapping_sub(1)) {
            Some(type_name) => format!("{name} {type_name}"),
            None => format!("{name} of the unknown datatype {}", self.datatype),
        }
    }
}

/// How the bytes of a point are read; every offset lies within `point_step`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    point_step: usize,
    big_endian: bool,
    /// x, y, z.
    position: [Coordinate; 3],
    color: Color,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Coordinate {
    offset: usize,
    is_double: bool,
}

/// Offsets of the colours.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Color {
    None,
    /// A number of 4 bytes: 0xAARRGGBB.
    Packed(usize),
    /// Red, green, blue: one byte each.
    Bytes([usize; 3]),
    /// Red, green, blue: FLOAT32, 0 to 1.
    Floats([usize; 3]),
}

impl Layout {
    pub(super) fn new(
        fields: &[Field],
        big_endian: bool,
        point_step: u32,
    ) -> Result<Self, Problem> {
        let fields = Fields { fields, point_step };
        let (x, y, z) = (fields.coordinate("x")?, fields.coordinate("y")?, fields.coordinate("z")?);
        let color = fields.color()?;
        Ok(Self { point_step: point_step as usize, big_endian, position: [x, y, z], color })
    }

    pub(super) fn has_color(&self) -> bool {
        self.color != Color::None
    }

    /// This layout, if it is a usual one.
    fn usual(&self) -> Option<Usual> {
        let [x, y, z] = self.position;
        let is_usual = !(self.big_endian || x.is_double || y.is_double || z.is_double)
            && (y.offset, z.offset) == (x.offset + 4, x.offset + 8);
        let color = match self.color {
            Color::None => None,
            Color::Packed(color) => Some(color),
            _ => return None,
        };
        is_usual.then_some(Usual { position: x.offset, color })
    }

    /// `row_step` as it must be: drivers leave it 0, or write the size of the whole cloud or of something else.
    /// Where the data is as long as rows without padding, that is what they are.
    fn row_step(&self, n_bytes: usize, [width, height]: [u32; 2], told: u32) -> u32 {
        let row_bytes = u64::from(width) * self.point_step as u64;
        let is_tight = row_bytes * u64::from(height) == n_bytes as u64;
        if is_tight { u32::try_from(row_bytes).unwrap_or(told) } else { told }
    }

    /// The `row_step` of a single row is not relied on: some drivers leave it 0.
    fn check_sizes(&self, n_bytes: usize, size: [u32; 2], row_step: u32) -> Result<(), Problem> {
        let [width, height] = size.map(u64::from);
        let [point_step, row_step] = [self.point_step as u64, u64::from(row_step)];
        // None of these overflows: 32 bits times 32 bits, and twice 32 bits less.
        let n_points = width * height;
        let row_bytes = width * point_step;
        let needed = (height.saturating_sub(1) * row_step).saturating_add(row_bytes);
        if n_points > MAX_PIXELS {
            Err(("width", format!("{n_points} points: at most {MAX_PIXELS} are supported")))
        } else if height > 1 && row_step < row_bytes {
            let problem =
                format!("{row_step} bytes do not hold {width} points of {point_step} bytes");
            Err(("row_step", problem))
        } else if needed > n_bytes as u64 {
            let problem = format!(
                "{width} x {height} points of {point_step} bytes, in rows of {row_step}, are \
                 {needed} bytes, got {n_bytes}"
            );
            Err(("data", problem))
        } else {
            Ok(())
        }
    }

    /// One point of any layout.
    fn point(&self, bytes: &[u8]) -> Point {
        let coordinate = |Coordinate { offset, is_double }| match is_double {
            true => f64::from_le_bytes(self.number(bytes, offset)) as f32,
            false => f32::from_le_bytes(self.number(bytes, offset)),
        };
        Point { position: self.position.map(coordinate), color: self.color(bytes) }
    }

    fn color(&self, bytes: &[u8]) -> u32 {
        // The cast saturates, and takes NaN to 0.
        let byte = |unit: f32| (unit * 255.0).round() as u8;
        let [r, g, b] = match self.color {
            Color::None => return GREY,
            Color::Packed(at) => return u32::from_le_bytes(self.number(bytes, at)),
            Color::Bytes(at) => at.map(|at| bytes[at]),
            Color::Floats(at) => at.map(|at| byte(f32::from_le_bytes(self.number(bytes, at)))),
        };
        u32::from_be_bytes([0, r, g, b])
    }

    /// `N` bytes in little-endian order.
    fn number<const N: usize>(&self, bytes: &[u8], offset: usize) -> [u8; N] {
        let mut value = [0; N];
        value.copy_from_slice(&bytes[offset..offset + N]);
        if self.big_endian {
            value.reverse();
        }
        value
    }
}

/// Where the points of a cloud lie in its message, row by row; all within it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    layout: Layout,
    /// First byte of the first point.
    start: usize,
    width: usize,
    height: usize,
    /// Bytes from one row to the next.
    row_step: usize,
}

impl Rows {
    /// Of a cloud of `size` (width, height), whose `n_bytes` of data begin at byte `start` of the message,
    /// in rows `row_step` bytes apart.
    pub(super) fn new(
        layout: Layout,
        start: usize,
        n_bytes: usize,
        size: [u32; 2],
        row_step: u32,
    ) -> Result<Self, Problem> {
        let row_step = layout.row_step(n_bytes, size, row_step);
        layout.check_sizes(n_bytes, size, row_step)?;
        let [width, height] = size.map(|n| n as usize);
        Ok(Self { layout, start, width, height, row_step: row_step as usize })
    }

    /// Number of points.
    pub(super) fn len(&self) -> usize {
        self.width * self.height
    }

    pub(super) fn has_color(&self) -> bool {
        self.layout.has_color()
    }

    /// Calls `f` with number and value of the points of these numbers that there are in `message`, which
    /// the rows were made for.
    pub(super) fn for_each_of(
        &self,
        message: &[u8],
        range: Range<usize>,
        mut f: impl FnMut(u32, Point),
    ) {
        let range = range.start.min(self.len())..range.end.min(self.len());
        let usual = self.layout.usual();
        let point_step = self.layout.point_step;
        let mut next = range.start;
        while next < range.end {
            let (row, column) = (next / self.width, next % self.width);
            let n = (self.width - column).min(range.end - next);
            let start = self.start + row * self.row_step + column * point_step;
            let points = message[start..start + n * point_step].chunks_exact(point_step);
            let points = (next as u32..).zip(points);
            // One loop for each, so that the usual one has no choice within.
            match usual {
                Some(usual) => points.for_each(|(i, bytes)| f(i, usual.point(bytes))),
                None => points.for_each(|(i, bytes)| f(i, self.layout.point(bytes))),
            }
            next += n;
        }
    }
}

/// x, y, z as three FLOAT32 in a row and a packed colour or none, little endian: what nearly all
/// drivers publish, and a copy of 16 bytes.
#[derive(Clone, Copy)]
struct Usual {
    position: usize,
    color: Option<usize>,
}

impl Usual {
    /// What [`Layout::point`] gives.
    fn point(&self, bytes: &[u8]) -> Point {
        let xyz = &bytes[self.position..self.position + 12];
        let axis = |i: usize| f32::from_le_bytes([xyz[i], xyz[i + 1], xyz[i + 2], xyz[i + 3]]);
        let color = self.color.map_or(GREY, |at| {
            let color = &bytes[at..at + 4];
            u32::from_le_bytes([color[0], color[1], color[2], color[3]])
        });
        Point { position: [axis(0), axis(4), axis(8)], color }
    }
}

/// The fields of a cloud, by name.
struct Fields<'a> {
    fields: &'a [Field<'a>],
    point_step: u32,
}

impl Fields<'_> {
    fn coordinate(&self, name: &str) -> Result<Coordinate, Problem> {
        let Some(field) = self.find(name)? else {
            return Err(("fields", format!("there is no `{name}`, but {}", self.describe())));
        };
        let n_bytes = match field.datatype {
            Field::FLOAT32 => 4,
            Field::FLOAT64 => 8,
            _ => return Err(wrong_type(field, "FLOAT32 or FLOAT64")),
        };
        let offset = self.offset(field, n_bytes)?;
        Ok(Coordinate { offset, is_double: n_bytes == 8 })
    }

    fn color(&self) -> Result<Color, Problem> {
        if let Some(field) = self.find("rgb")?.or(self.find("rgba")?) {
            return match field.datatype {
                Field::FLOAT32 | Field::UINT32 | Field::INT32 => {
                    Ok(Color::Packed(self.offset(field, 4)?))
                }
                _ => Err(wrong_type(field, "FLOAT32, UINT32 or INT32 (packed 0xAARRGGBB)")),
            };
        }
        let [Some(r), Some(g), Some(b)] = [self.find("r")?, self.find("g")?, self.find("b")?]
        else {
            return Ok(Color::None); // a lone `r` is something else, such as a range
        };
        let offsets = |n_bytes| -> Result<_, Problem> {
            Ok([self.offset(r, n_bytes)?, self.offset(g, n_bytes)?, self.offset(b, n_bytes)?])
        };
        match [r.datatype, g.datatype, b.datatype] {
            [Field::UINT8, Field::UINT8, Field::UINT8] => Ok(Color::Bytes(offsets(1)?)),
            [Field::FLOAT32, Field::FLOAT32, Field::FLOAT32] => Ok(Color::Floats(offsets(4)?)),
            _ => Err(wrong_type(r, "UINT8 as `g` and `b`, or FLOAT32 (0 to 1) as they are")),
        }
    }

    /// The one field of this name, if any.
    fn find(&self, name: &str) -> Result<Option<&Field<'_>>, Problem> {
        let mut found = self.fields.iter().filter(|field| field.name == name);
        match (found.next(), found.next()) {
            (Some(a), Some(b)) => {
                let problem = format!("there are {} and {}", a.describe(), b.describe());
                Err(("fields", problem))
            }
            (field, _) => Ok(field),
        }
    }

    /// Offset of a field of one number, which must lie within the point.
    fn offset(&self, field: &Field, n_bytes: u64) -> Result<usize, Problem> {
        // Some drivers write 0 for one number.
        if field.count > 1 {
            let problem = format!("{} is {} numbers, not one", field.describe(), field.count);
            return Err(("fields", problem));
        }
        let end = u64::from(field.offset) + n_bytes;
        if end > u64::from(self.point_step) {
            let (field, step) = (field.describe(), self.point_step);
            return Err(("fields", format!("{field} ends at byte {end} of points of {step}")));
        }
        Ok(field.offset as usize)
    }

    fn describe(&self) -> String {
        let shown = self.fields.iter().take(MAX_NAMES).map(Field::describe);
        let shown = shown.collect::<Vec<_>>().join(", ");
        match self.fields.len() {
            0 => "no field at all".to_owned(),
            n if n > MAX_NAMES => format!("{shown}, and {} more", n - MAX_NAMES),
            _ => shown,
        }
    }
}

fn wrong_type(field: &Field, expected: &str) -> Problem {
    ("fields", format!("there is {}, not {expected}", field.describe()))
}

#[cfg(test)]
impl Layout {
    /// Whether the layout is a usual one, and if so, whether both ways read the same bits.
    pub(super) fn both_ways_agree(&self, bytes: &[u8]) -> Option<bool> {
        let bits = |point: Point| (point.position.map(f32::to_bits), point.color);
        Some(bits(self.usual()?.point(bytes)) == bits(self.point(bytes)))
    }
}
