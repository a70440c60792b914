// Draws the same panes as draw_gl.js without WebGL: the farthest first.
class FlatDrawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  draw(panes, camera, background) {
    const c = this.context;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = css(background);
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    for (const pane of panes) {
      c.save();
      c.beginPath();
      c.rect(pane.x, pane.y, pane.width, pane.height);
      c.clip();
      const eye = camera.matrix(pane.width / pane.height);
      const project = (values, i) => {
        const [x, y, z] = [values[i], values[i + 1], values[i + 2]];
        const row = (r) => eye[r] * x + eye[4 + r] * y + eye[8 + r] * z + eye[12 + r];
        const w = row(3);
        return [
          pane.x + (0.5 + (0.5 * row(0)) / w) * pane.width,
          pane.y + (0.5 - (0.5 * row(1)) / w) * pane.height,
          w,
        ];
      };
      this.drawLines(pane.lines, project);
      this.drawPoints(pane, camera, project);
      c.restore();
    }
  }

  drawLines(lines, project) {
    const c = this.context;
    c.lineWidth = devicePixelRatio || 1;
    for (let i = 0; i < lines.length; i += 12) {
      const [a, b] = [project(lines, i), project(lines, i + 6)];
      if (a[2] <= 0 || b[2] <= 0) continue;
      c.strokeStyle = css(lines.subarray(i + 3, i + 6));
      c.beginPath();
      c.moveTo(a[0], a[1]);
      c.lineTo(b[0], b[1]);
      c.stroke();
    }
  }

  drawPoints({ points, height }, camera, project) {
    const c = this.context;
    const pixels = height / Math.tan(camera.fov / 2);
    const order = [];
    for (let i = 0; i < points.length; i += 11) {
      const at = project(points, i);
      if (at[2] > 0) order.push([at, i]);
    }
    order.sort((a, b) => b[0][2] - a[0][2]);
    for (const [[x, y, w], i] of order) {
      const radius = Math.max(1, (0.5 * points[i + 9] * pixels) / w);
      const shape = (size, color) => {
        c.fillStyle = css(color);
        c.beginPath();
        if (points[i + 10] < 0.5) {
          c.arc(x, y, size, 0, 2 * Math.PI);
        } else if (points[i + 10] < 1.5) {
          c.moveTo(x, y - size);
          c.lineTo(x + size, y);
          c.lineTo(x, y + size);
          c.lineTo(x - size, y);
        } else {
          c.rect(x - size, y - size, 2 * size, 2 * size);
        }
        c.fill();
      };
      shape(radius, points.subarray(i + 6, i + 9));
      shape(0.6 * radius, points.subarray(i + 3, i + 6));
    }
  }
}

// A colour of three numbers, 0 to 1.
function css(color) {
  return `rgb(${[...color].map((channel) => Math.round(255 * channel)).join(" ")})`;
}
