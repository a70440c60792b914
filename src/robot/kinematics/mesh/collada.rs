//! COLLADA (.dae): the triangles of its scene, as RViz shows them.
//!
//! The nodes' transforms and the unit count; `up_axis` does not: RViz (and trimesh) leave it out,
//! and robots' meshes are made to look right there. Skins, splines and references to other files are
//! not read.

use super::{MAX_TRIANGLES, Problem, Triangle, check_count};
use nalgebra::{Matrix4, Point3, Rotation3, Translation3, Unit, Vector3};
use roxmltree::{Document, Node, NodeId, ParsingOptions};
use std::collections::HashMap;
use std::rc::Rc;

/// Elements and texts of a file.
const MAX_XML_NODES: u32 = 2_000_000;
/// Deepest nesting of scene nodes, instances counted.
const MAX_DEPTH: usize = 64;
/// Scene nodes and their parts that are visited: those that are instanced count each time.
const MAX_VISITS: usize = 1_000_000;
/// Largest `offset` of an input, and most values of a source's row.
const MAX_STRIDE: usize = 64;

type Corners = Rc<Vec<[f32; 3]>>;

/// Triangles of a COLLADA file, metres.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Triangle>, Problem> {
    // Names of authors in other encodings don't matter here.
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}');
    let options = ParsingOptions { nodes_limit: MAX_XML_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)
        .map_err(|error| format!("{error}: export it again"))?;
    let root = document.root_element();
    let meter = unit(root)?;
    let mut reader = Reader::new(&document);
    match scene(root, &reader) {
        Some(scene) => {
            for node in nodes(scene, "node") {
                reader.place(node, &Matrix4::identity(), 0)?;
            }
        }
        None => {
            for geometry in root.descendants().filter(|node| is(node, "geometry")) {
                reader.add(geometry, &Matrix4::identity())?;
            }
        }
    }
    let metres = |corner: Point3<f64>| (corner.coords * meter).cast::<f32>().into();
    Ok(reader.triangles.iter().map(|triangle| triangle.map(metres)).collect())
}

/// Metres of the file's unit.
fn unit(root: Node) -> Result<f64, Problem> {
    let unit = nodes(root, "asset").flat_map(|asset| nodes(asset, "unit")).next();
    let Some(text) = unit.and_then(|unit| unit.attribute("meter")) else { return Ok(1.0) };
    match text.trim().parse::<f64>() {
        Ok(meter) if meter.is_finite() && meter > 0.0 => Ok(meter),
        _ => Err(format!("its unit is '{}' metres", super::shown(text))),
    }
}

/// The scene that is shown, else the first.
fn scene<'a, 'i>(root: Node<'a, 'i>, reader: &Reader<'a, 'i>) -> Option<Node<'a, 'i>> {
    let shown = nodes(root, "scene").flat_map(|scene| nodes(scene, "instance_visual_scene")).next();
    let shown = shown.and_then(|instance| reader.target(instance, "url"));
    let library = || nodes(root, "library_visual_scenes").flat_map(|l| nodes(l, "visual_scene"));
    shown.or_else(|| library().next())
}

/// Children of `node` that are elements named `name`, whatever their namespace.
fn nodes<'a, 'i>(node: Node<'a, 'i>, name: &'static str) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(move |child| is(child, name))
}

fn is(node: &Node, name: &str) -> bool {
    node.is_element() && node.tag_name().name() == name
}

/// Words of an element's text.
fn words<'a>(node: Node<'a, '_>) -> impl Iterator<Item = &'a str> {
    let texts = node.children().filter(Node::is_text).filter_map(|text| text.text());
    texts.flat_map(str::split_ascii_whitespace)
}

/// The numbers of an element's text, which must be `N`.
fn numbers<const N: usize>(node: Node) -> Result<[f64; N], Problem> {
    let numbers: Result<Vec<f64>, _> = words(node).take(N + 1).map(str::parse).collect();
    let numbers = numbers.ok().and_then(|numbers| <[f64; N]>::try_from(numbers).ok());
    numbers.ok_or_else(|| format!("<{}> has not {N} numbers", node.tag_name().name()))
}

fn count(node: Node, attribute: &str, default: usize) -> Result<usize, Problem> {
    let Some(text) = node.attribute(attribute) else { return Ok(default) };
    let problem = || format!("{attribute}=\"{}\" is no small number", super::shown(text));
    text.trim().parse().ok().filter(|n| *n <= MAX_STRIDE).ok_or_else(problem)
}

/// What a node's transforms make of its parent's frame.
fn transform(node: Node) -> Result<Matrix4<f64>, Problem> {
    let mut whole = Matrix4::identity();
    for child in node.children().filter(Node::is_element) {
        let own = match child.tag_name().name() {
            "matrix" => Matrix4::from_row_slice(&numbers::<16>(child)?),
            "translate" => Translation3::from(numbers::<3>(child)?).to_homogeneous(),
            "scale" => Matrix4::new_nonuniform_scaling(&Vector3::from(numbers::<3>(child)?)),
            "rotate" => {
                let [x, y, z, degrees] = numbers::<4>(child)?;
                let Some(axis) = Unit::try_new(Vector3::new(x, y, z), 1e-12) else { continue };
                Rotation3::from_axis_angle(&axis, degrees.to_radians()).to_homogeneous()
            }
            "skew" => return Err("<skew> is not read: apply transforms on export".to_owned()),
            // <lookat> is a camera's.
            _ => continue,
        };
        whole *= own;
    }
    Ok(whole)
}

struct Reader<'a, 'i> {
    ids: HashMap<&'a str, Node<'a, 'i>>,
    /// Positions of sources and of what refers to them, and triangles of geometries, each read once.
    sources: HashMap<NodeId, Corners>,
    geometries: HashMap<NodeId, Rc<Vec<Triangle>>>,
    n_visits: usize,
    triangles: Vec<[Point3<f64>; 3]>,
}

impl<'a, 'i> Reader<'a, 'i> {
    fn new(document: &'a Document<'i>) -> Self {
        let mut ids = HashMap::new();
        for node in document.descendants() {
            if let Some(id) = node.attribute("id") {
                ids.entry(id).or_insert(node);
            }
        }
        let (sources, geometries) = (HashMap::new(), HashMap::new());
        Self { ids, sources, geometries, n_visits: 0, triangles: Vec::new() }
    }

    /// The element that an attribute refers to, if it is in this file.
    fn target(&self, node: Node, attribute: &str) -> Option<Node<'a, 'i>> {
        self.ids.get(node.attribute(attribute)?.trim().strip_prefix('#')?).copied()
    }

    /// As [`Reader::target`], which must be there.
    fn referred(&self, node: Node, attribute: &str) -> Result<Node<'a, 'i>, Problem> {
        self.target(node, attribute).ok_or_else(|| {
            let url = super::shown(node.attribute(attribute).unwrap_or_default());
            format!("<{}> refers to '{url}', which is not in it", node.tag_name().name())
        })
    }

    /// Adds what hangs on a scene node; `parent` is its parent's transform.
    fn place(
        &mut self,
        node: Node<'a, 'i>,
        parent: &Matrix4<f64>,
        depth: usize,
    ) -> Result<(), Problem> {
        self.n_visits += 1 + node.children().count();
        if depth > MAX_DEPTH || self.n_visits > MAX_VISITS {
            return Err("its scene nodes are nested too deeply, too many, or circular".to_owned());
        }
        let whole = parent * transform(node)?;
        for child in node.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "node" => self.place(child, &whole, depth + 1)?,
                "instance_node" => {
                    let target = self.referred(child, "url")?;
                    self.place(target, &whole, depth + 1)?;
                }
                "instance_geometry" => {
                    let geometry = self.referred(child, "url")?;
                    self.add(geometry, &whole)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the triangles of a geometry.
    fn add(&mut self, geometry: Node<'a, 'i>, transform: &Matrix4<f64>) -> Result<(), Problem> {
        let triangles = match self.geometries.get(&geometry.id()) {
            Some(known) => known.clone(),
            None => {
                let read = Rc::new(self.triangles_of(geometry)?);
                self.geometries.insert(geometry.id(), read.clone());
                read
            }
        };
        check_count(self.triangles.len() + triangles.len())?;
        let place = |corner: [f32; 3]| {
            let corner = Point3::from(corner.map(f64::from));
            // No perspective: the last row is (0, 0, 0, 1) in any sane file.
            Point3::from((transform * corner.to_homogeneous()).xyz())
        };
        self.triangles.extend(triangles.iter().map(|triangle| triangle.map(place)));
        Ok(())
    }

    fn triangles_of(&mut self, geometry: Node<'a, 'i>) -> Result<Vec<Triangle>, Problem> {
        let mut triangles = Vec::new();
        for mesh in nodes(geometry, "mesh") {
            for primitive in mesh.children().filter(Node::is_element) {
                let kind = primitive.tag_name().name();
                if ["triangles", "polylist", "polygons", "trifans", "tristrips"].contains(&kind) {
                    self.primitive(primitive, &mut triangles)?;
                }
            }
        }
        Ok(triangles)
    }

    fn primitive(
        &mut self,
        primitive: Node<'a, 'i>,
        out: &mut Vec<Triangle>,
    ) -> Result<(), Problem> {
        let mut vertex = None;
        let mut stride = 1;
        for input in nodes(primitive, "input") {
            let offset = count(input, "offset", 0)?;
            stride = stride.max(offset + 1);
            if input.attribute("semantic") == Some("VERTEX") {
                vertex = Some((offset, self.referred(input, "source")?));
            }
        }
        let Some((offset, vertices)) = vertex else { return Ok(()) };
        let corners = self.positions(vertices)?;
        let kind = primitive.tag_name().name();
        if nodes(primitive, "ph").next().is_some() {
            return Err("polygons with holes are not read: triangulate on export".to_owned());
        }
        let mut sizes = nodes(primitive, "vcount").flat_map(words);
        for p in nodes(primitive, "p") {
            let mut corners = words(p).skip(offset).step_by(stride).map(|index| {
                let index = index.parse::<usize>().ok();
                let corner = index.and_then(|i| corners.get(i)).copied();
                corner.ok_or_else(|| "a face has no such corner: export it again".to_owned())
            });
            match kind {
                "triangles" => while fan(&mut corners, 3, out)? == 3 {},
                "tristrips" => strip(&mut corners, out)?,
                "polylist" => {
                    for size in sizes.by_ref() {
                        let problem = || "a polygon's size is no number".to_owned();
                        let size: usize = size.parse().map_err(|_| problem())?;
                        if fan(&mut corners, size, out)? != size {
                            return Err("its polygons end early: export it again".to_owned());
                        }
                    }
                }
                _ => drop(fan(&mut corners, usize::MAX, out)?),
            }
        }
        Ok(())
    }

    /// What a `<vertices>` element refers to.
    fn positions(&mut self, vertices: Node<'a, 'i>) -> Result<Corners, Problem> {
        if let Some(known) = self.sources.get(&vertices.id()) {
            return Ok(known.clone());
        }
        let is_position = |input: &Node| input.attribute("semantic") == Some("POSITION");
        let Some(input) = nodes(vertices, "input").find(is_position) else {
            return Err("it has vertices without positions".to_owned());
        };
        let source = self.referred(input, "source")?;
        let corners = match self.sources.get(&source.id()) {
            Some(known) => known.clone(),
            None => Rc::new(rows(source)?),
        };
        self.sources.insert(source.id(), corners.clone());
        self.sources.insert(vertices.id(), corners.clone());
        Ok(corners)
    }
}

/// The first three values of each row of a source.
fn rows(source: Node) -> Result<Vec<[f32; 3]>, Problem> {
    let accessor = nodes(source, "technique_common").flat_map(|t| nodes(t, "accessor")).next();
    let (stride, start) = match accessor {
        Some(accessor) => (count(accessor, "stride", 1)?, count(accessor, "offset", 0)?),
        None => (3, 0),
    };
    if stride < 3 {
        return Err(format!("its positions have {stride} coordinates, not 3"));
    }
    let values = nodes(source, "float_array").flat_map(words).skip(start).map(str::parse);
    let values: Vec<f32> =
        values.collect::<Result<_, _>>().map_err(|_| "a position is no number".to_owned())?;
    Ok(values.chunks(stride).filter_map(|row| row.first_chunk::<3>().copied()).collect())
}

/// Takes up to `n` corners as a polygon, as a fan about the first; returns how many there were.
fn fan(
    corners: &mut impl Iterator<Item = Result<[f32; 3], Problem>>,
    n: usize,
    out: &mut Vec<Triangle>,
) -> Result<usize, Problem> {
    let (mut first, mut last) = (None, None);
    let mut taken = 0;
    while taken < n {
        let Some(corner) = corners.next().transpose()? else { break };
        taken += 1;
        if let (Some(first), Some(last)) = (first, last.replace(corner))
            && taken > 2
        {
            push(out, [first, last, corner])?;
        }
        first.get_or_insert(corner);
    }
    Ok(taken)
}

/// Takes all corners as a strip: each with the two before it.
fn strip(
    corners: &mut impl Iterator<Item = Result<[f32; 3], Problem>>,
    out: &mut Vec<Triangle>,
) -> Result<(), Problem> {
    let mut last: [Option<[f32; 3]>; 2] = [None; 2];
    for corner in corners {
        let corner = corner?;
        if let [Some(a), Some(b)] = last {
            push(out, [a, b, corner])?;
        }
        last = [last[1], Some(corner)];
    }
    Ok(())
}

fn push(out: &mut Vec<Triangle>, triangle: Triangle) -> Result<(), Problem> {
    // Before it grows, not after.
    if out.len() >= MAX_TRIANGLES {
        return check_count(out.len() + 1);
    }
    out.push(triangle);
    Ok(())
}
