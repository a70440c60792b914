// Draws panes by WebGL. A pane has points (11 numbers each: position, colour, ring's colour,
// radius in m, shape) and lines (6 numbers an end: position, colour).
class GlDrawing {
  constructor(canvas) {
    const options = { alpha: false, antialias: true, preserveDrawingBuffer: true };
    const gl = canvas.getContext("webgl", options);
    if (!gl) throw new Error("no WebGL");
    this.gl = gl;
    this.canvas = canvas;
    this.points = this.program(
      `attribute vec3 place; attribute vec3 color; attribute vec3 ring; attribute vec2 look;
       uniform mat4 eye; uniform float pixels;
       varying vec3 inner; varying vec3 outer; varying float shape; varying float size;
       void main() {
         gl_Position = eye * vec4(place, 1.0);
         size = max(2.0, look.x * pixels / gl_Position.w);
         gl_PointSize = size;
         inner = color; outer = ring; shape = look.y;
       }`,
      `precision mediump float;
       varying vec3 inner; varying vec3 outer; varying float shape; varying float size;
       void main() {
         vec2 at = abs(2.0 * gl_PointCoord - 1.0);
         float far = shape < 0.5 ? length(at) : shape < 1.5 ? at.x + at.y : max(at.x, at.y);
         if (far > 1.0) discard;
         float edge = clamp((1.0 - far) * 0.5 * size, 0.0, 1.0);
         gl_FragColor = vec4(far > 0.6 ? outer : inner, edge);
       }`,
    );
    this.lines = this.program(
      `attribute vec3 place; attribute vec3 color; uniform mat4 eye; varying vec3 inner;
       void main() { gl_Position = eye * vec4(place, 1.0); inner = color; }`,
      `precision mediump float; varying vec3 inner;
       void main() { gl_FragColor = vec4(inner, 1.0); }`,
    );
    this.buffer = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    gl.enable(gl.DEPTH_TEST);
    gl.enable(gl.SCISSOR_TEST);
    gl.enable(gl.SAMPLE_ALPHA_TO_COVERAGE);
  }

  program(vertex, fragment) {
    const gl = this.gl;
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) {
      throw new Error(gl.getProgramInfoLog(program) || "shaders");
    }
    return program;
  }

  // `panes`: { x, y, width, height (in pixels, from the top left), points, lines }.
  draw(panes, camera, background) {
    const gl = this.gl;
    gl.scissor(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(...background, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    for (const pane of panes) {
      const bottom = this.canvas.height - pane.y - pane.height;
      gl.viewport(pane.x, bottom, pane.width, pane.height);
      gl.scissor(pane.x, bottom, pane.width, pane.height);
      const eye = camera.matrix(pane.width / pane.height);
      this.batch(this.lines, pane.lines, gl.LINES, 6, eye, { place: [3, 0], color: [3, 3] });
      const looks = { place: [3, 0], color: [3, 3], ring: [3, 6], look: [2, 9] };
      gl.useProgram(this.points);
      const pixels = pane.height / Math.tan(camera.fov / 2);
      gl.uniform1f(gl.getUniformLocation(this.points, "pixels"), pixels);
      this.batch(this.points, pane.points, gl.POINTS, 11, eye, looks);
    }
  }

  batch(program, values, kind, stride, eye, attributes) {
    const gl = this.gl;
    if (!values.length) return;
    gl.useProgram(program);
    gl.uniformMatrix4fv(gl.getUniformLocation(program, "eye"), false, eye);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.DYNAMIC_DRAW);
    const places = Object.entries(attributes).map(([name, [size, offset]]) => {
      const place = gl.getAttribLocation(program, name);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, size, gl.FLOAT, false, 4 * stride, 4 * offset);
      return place;
    });
    gl.drawArrays(kind, 0, values.length / stride);
    places.forEach((place) => gl.disableVertexAttribArray(place));
  }
}
