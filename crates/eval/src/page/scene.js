// One frame: its data as numbers. Classes: 0 moving object, 1 object at rest, 2 robot, 3 static.
const [MOVING, RESTING, ROBOT, STATIC] = [0, 1, 2, 3];

// Without truth: predicted ways and distances to what was there above these tell of motion (m).
const MOVED_M = 0.01, CHANGED_M = 0.03;
const NOTHING = { n: 0, places: new Float32Array(0), colors: new Float32Array(0), classes: [] };

class Scene {
  constructor(data) {
    this.data = data;
    this.n = data.n;
    this.steps = data.steps;
    this.colors = shares(data.colors);
    this.prediction = this.places(data.prediction);
    this.start = this.prediction.subarray(0, 3 * this.n);
    this.truth = data.truth === null ? null : this.places(data.truth);
    this.velocities = { nothing: new Float32Array(3 * this.n) };
    for (const name of ["estimated", "velocity"]) {
      if (data[name] !== null) this.velocities[name] = new Float32Array(bytes(data[name]).buffer);
    }
    this.classes = data.classes === null ? this.guessClasses() : bytes(data.classes);
    this.seen = data.seen === null ? null : data.seen.map((seen) => seen && {
      n: seen.n,
      places: this.places(seen.positions),
      colors: shares(seen.colors),
    });
    this.distances = new Map();
  }

  // 16 bits an axis of the box, as scene.rs packs them, to metres.
  places(text) {
    const words = new Uint16Array(bytes(text).buffer);
    const { min, size } = this.data;
    return Float32Array.from(words, (word, i) => min[i % 3] + (word / 65535) * size[i % 3]);
  }

  // Without truth: what is predicted to move, and what is not.
  guessClasses() {
    const last = this.prediction.subarray(3 * this.n * this.steps);
    return Uint8Array.from({ length: this.n }, (_, i) =>
      distance(last, i, this.start, i) > MOVED_M ? RESTING : STATIC);
  }

  // What is seen near a place where something was at the start counts as static.
  seenClasses(seen) {
    if (seen && !seen.classes) {
      const far = nearest(seen.places, seen.n, { n: this.n, places: this.start });
      seen.classes = Uint8Array.from(far, (distance) => (distance > CHANGED_M ? RESTING : STATIC));
    }
    return seen;
  }

  // Points of a layer after `t` steps (which need not be whole): { n, places, colors }.
  layer(name, t) {
    if (name === "truth" && this.seen) {
      const step = Math.round(t);
      const { n, start: places, colors, classes } = this;
      if (step === 0) return { n, places, colors, classes };
      return this.seenClasses(this.seen[step - 1]) || NOTHING;
    }
    const places = new Float32Array(3 * this.n);
    if (name === "truth" || name === "model") {
      const all = name === "truth" ? this.truth : this.prediction;
      const last = name === "truth" ? this.data.true_steps : this.steps;
      const from = Math.floor(Math.min(t, last)), to = Math.min(from + 1, last);
      const share = Math.min(t, last) - from, width = 3 * this.n;
      for (let i = 0; i < width; i++) {
        places[i] = (1 - share) * all[from * width + i] + share * all[to * width + i];
      }
    } else {
      const velocity = this.velocities[name], steps = t * this.data.stride;
      for (let i = 0; i < places.length; i++) places[i] = this.start[i] + steps * velocity[i];
    }
    return { n: this.n, places, colors: this.colors, isParticles: true };
  }

  // Last step that the truth, or what was seen, reaches.
  known() {
    return this.seen ? this.seen.findLastIndex((seen) => seen) + 1 : this.data.true_steps;
  }

  // Error of each particle of a layer (m); null where the truth is not known.
  errors(name, t, layer) {
    if (!layer.isParticles || t > this.known()) return null;
    if (this.truth) {
      const truth = this.layer("truth", t).places;
      return Float32Array.from({ length: this.n }, (_, i) => distance(layer.places, i, truth, i));
    }
    const step = Math.round(t), key = `${name} ${step}`;
    if (!this.distances.has(key)) {
      const seen = this.layer("truth", step), at = this.layer(name, step).places;
      this.distances.set(key, seen.n ? nearest(at, this.n, seen) : null);
    }
    return this.distances.get(key);
  }

  // Step's errors of all methods as the report counts them: [[label, mm], …].
  told(step) {
    const labels = ["prediction", "nothing moves", "constant velocity, estimated", "constant velocity, true"];
    const errors = this.data.errors;
    if (!errors || step < 1) return [];
    const values = labels.map((label, i) => [label, errors[i][step - 1] ?? null]);
    return values.filter(([, value]) => value !== null);
  }
}

function bytes(text) {
  const letters = atob(text);
  return Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
}

// Bytes as 0 to 1.
function shares(text) {
  return Float32Array.from(bytes(text), (byte) => byte / 255);
}

function distance(a, i, b, j) {
  return Math.hypot(a[3 * i] - b[3 * j], a[3 * i + 1] - b[3 * j + 1], a[3 * i + 2] - b[3 * j + 2]);
}

// Distance of each of the `n` places to the nearest point seen (m).
function nearest(places, n, seen) {
  return Float32Array.from({ length: n }, (_, i) => {
    let least = Infinity;
    for (let j = 0; j < seen.n; j++) {
      const dx = places[3 * i] - seen.places[3 * j];
      const dy = places[3 * i + 1] - seen.places[3 * j + 1];
      const dz = places[3 * i + 2] - seen.places[3 * j + 2];
      least = Math.min(least, dx * dx + dy * dy + dz * dz);
    }
    return Math.sqrt(least);
  });
}
