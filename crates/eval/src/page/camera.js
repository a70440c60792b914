// The eye: it turns about a target; z is up. Matrices are column by column, as WebGL takes them.
class Camera {
  constructor() {
    this.fov = (32 * Math.PI) / 180;
    this.frameBox([-0.5, -0.5, 0], [0.5, 0.5, 0.5]);
  }

  // Looks at a box (m) as a whole, from the front right and above.
  frameBox(min, max) {
    this.azimuth = (-55 * Math.PI) / 180;
    this.elevation = (30 * Math.PI) / 180;
    this.target = min.map((low, i) => (low + max[i]) / 2);
    this.radius = Math.max(0.05, Math.hypot(...min.map((low, i) => max[i] - low)) / 2);
    this.zoom = 1;
  }

  turn(right, up) {
    this.azimuth -= right;
    const most = Math.PI / 2 - 0.01;
    this.elevation = Math.max(-most, Math.min(most, this.elevation + up));
  }

  zoomBy(factor) {
    this.zoom = Math.max(0.2, Math.min(30, this.zoom * factor));
  }

  // By parts of a pane's height.
  shift(right, up) {
    const { r, u } = this.axes();
    const scale = (2 * Math.tan(this.fov / 2) * this.distance) || 1;
    for (let i = 0; i < 3; i++) this.target[i] -= scale * (right * r[i] + up * u[i]);
  }

  axes() {
    const [sa, ca] = [Math.sin(this.azimuth), Math.cos(this.azimuth)];
    const [se, ce] = [Math.sin(this.elevation), Math.cos(this.elevation)];
    return { r: [-sa, ca, 0], u: [-se * ca, -se * sa, ce], back: [ce * ca, ce * sa, se] };
  }

  // World to clip coordinates of a pane of an aspect ratio (width / height).
  matrix(aspect) {
    const half = Math.tan(this.fov / 2);
    this.distance = (0.92 * this.radius) / (half * Math.min(1, aspect)) / this.zoom;
    const { r, u, back } = this.axes();
    const eye = this.target.map((x, i) => x + this.distance * back[i]);
    const dot = (a) => a[0] * eye[0] + a[1] * eye[1] + a[2] * eye[2];
    const near = this.distance / 50, far = this.distance + 20;
    const sx = 1 / (half * aspect), sy = 1 / half;
    const sz = -(far + near) / (far - near), tz = (-2 * far * near) / (far - near);
    const column = (i) => [sx * r[i], sy * u[i], sz * back[i], -back[i]];
    return new Float32Array([
      ...column(0), ...column(1), ...column(2),
      -sx * dot(r), -sy * dot(u), -sz * dot(back) + tz, dot(back),
    ]);
  }
}
