// The view: what is drawn, and what mouse, fingers and keys do.
{
  const $ = (id) => document.getElementById(id);
  const heads = JSON.parse($("heads").textContent);
  const scenes = JSON.parse($("scenes").textContent);
  const decoded = new Map();
  const camera = new Camera();
  const BASELINES = {
    nothing: "nothing moves",
    estimated: "constant velocity, estimated",
    velocity: "constant velocity, true (privileged)",
  };
  const LEAST_WAY_M = 0.004;
  const MAX_WAYS = 100;
  const state = { scene: 0, t: 0, isPlaying: false, last: 0 };
  let canvas = $("canvas");
  let drawing = null;
  let isAsked = false;

  const scene = () => {
    if (!decoded.has(state.scene)) {
      decoded.clear(); // One at a time, so that memory stays small.
      decoded.set(state.scene, new Scene(scenes[state.scene]));
    }
    return decoded.get(state.scene);
  };

  const start = () => {
    $("view").hidden = false;
    try {
      drawing = new GlDrawing(canvas);
    } catch {
      // A canvas that gave one kind of context gives no other.
      const fresh = canvas.cloneNode();
      canvas.replaceWith(fresh);
      canvas = fresh;
      drawing = new FlatDrawing(canvas);
    }
    $("stage").dataset.drawing = drawing instanceof GlDrawing ? "webgl" : "2d";
    fillFrames();
    listen();
    choose(0);
  };

  const fillFrames = () => {
    const groups = new Map();
    heads.scenes.forEach((head, index) => {
      if (!groups.has(head.recording)) {
        const group = document.createElement("optgroup");
        group.label = head.task === null ? head.name : `${head.name} (${head.task})`;
        groups.set(head.recording, group);
        $("frame").append(group);
      }
      const name = groups.size > 1 || heads.scenes.length > 6 ? `${head.name}, ` : "";
      groups.get(head.recording).append(new Option(`${name}at ${head.at_secs.toFixed(1)} s`, index));
    });
  };

  const choose = (index) => {
    state.scene = Math.max(0, Math.min(scenes.length - 1, index));
    $("frame").value = state.scene;
    $("previous").disabled = state.scene === 0;
    $("next").disabled = state.scene === scenes.length - 1;
    const now = scene();
    $("step").max = now.steps;
    const chosen = $("baseline").value;
    const names = Object.keys(BASELINES).filter((name) => now.velocities[name]);
    $("baseline").replaceChildren(...names.map((name) => new Option(BASELINES[name], name)));
    if (names.includes(chosen)) $("baseline").value = chosen;
    $("truth-name").textContent = now.seen ? "seen then" : "truth";
    home();
    // Without truth: the last step that some frame shows, not a gap.
    setTime(now.seen ? now.known() : now.steps);
  };

  // Looks at all particles, the moving ones near the middle.
  const home = () => {
    const { start: places, classes, n } = scene();
    const middle = (of) => [0, 1, 2].map((axis) => {
      const values = [];
      for (let i = 0; i < n; i++) if (of(i)) values.push(places[3 * i + axis]);
      values.sort((a, b) => a - b);
      const at = (q) => values[Math.floor(q * (values.length - 1))];
      return values.length ? [at(0.02), at(0.98)] : null;
    });
    const all = middle(() => true);
    if (!all[0]) return;
    camera.frameBox(all.map((pair) => pair[0]), all.map((pair) => pair[1]));
    const active = middle((i) => classes[i] === MOVING);
    if (active[0]) {
      camera.target = camera.target.map((x, i) => 0.4 * x + 0.3 * (active[i][0] + active[i][1]));
    }
    camera.zoom = 1.12;
    ask();
  };

  const setTime = (t) => {
    const step = Math.round(t), before = Math.round(state.t);
    state.t = t;
    const now = scene();
    $("step").value = step;
    const secs = t * now.data.stride * heads.step_secs;
    $("time").textContent = `${state.isPlaying ? secs.toFixed(2) : +secs.toFixed(3)} s ahead`;
    $("step").setAttribute("aria-valuetext", `step ${step} of ${now.steps}, ${+secs.toFixed(3)} s ahead`);
    if (step !== before || !state.isPlaying) tell(step);
    ask();
  };

  const tell = (step) => {
    const now = scene(), told = now.told(step);
    const left = now.n < now.data.n_all ? ` ${now.n} of ${now.data.n_all} particles are drawn.` : "";
    const steps = now.data.stride > 1 ? ` One of ${now.data.stride} steps is shown.` : "";
    let text = "Now: where the particles are at the start.";
    if (step > now.known()) {
      text = now.seen ? "No frame shows this time." : "The truth ends before this step.";
    } else if (now.seen && step > 0) {
      text = now.seen[step - 1] ? "Beside the prediction: the points that the cameras saw then."
        : "No frame shows this time.";
    } else if (told.length) {
      const n = now.data.moving[step - 1];
      text = `Mean error on the ${n} points that move: ` +
        told.map(([label, value]) => `${label} ${digits(value)} mm`).join("; ") + ".";
    } else if (step > 0) {
      text = "No object moves in this step.";
    }
    $("readout").textContent = text + left + steps;
  };

  // --- What is drawn.

  const hex = (name) => {
    const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    return [1, 3, 5].map((i) => parseInt(value.slice(i, i + 2), 16) / 255);
  };
  const mix = (a, b, share) => a.map((x, i) => (1 - share) * x + share * b[i]);
  const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  // Steady in lightness: what is wrong stands out from the ground, in grey too.
  const ramp = (share) => {
    const stops = isDark()
      ? [[0.23, 0.27, 0.34], [0.63, 0.27, 0.36], [0.95, 0.55, 0.2], [1, 0.95, 0.6]]
      : [[0.8, 0.83, 0.86], [0.93, 0.62, 0.36], [0.75, 0.2, 0.16], [0.25, 0.02, 0.15]];
    const at = 3 * Math.max(0, Math.min(1, share)), low = Math.min(2, Math.floor(at));
    return mix(stops[low], stops[low + 1], at - low);
  };

  const layers = () => {
    const names = [];
    if ($("show-truth").checked) names.push("truth");
    if ($("show-model").checked) names.push("model");
    if ($("show-baseline").checked) names.push($("baseline").value);
    return names;
  };
  const labelOf = (name) => name === "truth" ? $("truth-name").textContent
    : name === "model" ? "prediction" : BASELINES[name];
  const colorOf = (name) => hex(name === "truth" ? "--ink" : `--${name}`);

  // Error at which the ramp ends (m): a round number that few of the prediction's errors exceed.
  const rampEnd = () => {
    const now = scene(), step = Math.max(1, now.known());
    const errors = now.errors("model", step, now.layer("model", step));
    if (!errors || !errors.length) return 0.05;
    const sorted = Float32Array.from(errors).sort();
    const high = Math.max(0.005, sorted[Math.floor(0.97 * (sorted.length - 1))]);
    return [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((end) => end >= high) || 1;
  };

  const panes = () => {
    const names = layers(), isBeside = $("layout").value === "beside";
    const groups = isBeside ? names.map((name) => [name]) : names.length ? [names] : [];
    const isWide = canvas.width > canvas.height * 1.15 || groups.length < 2;
    const look = {
      ground: hex("--stage"), rule: hex("--rule"), isBeside,
      dims: $("dim").checked, dimming: isDark() ? 0.85 : 1, byError: $("color").value === "error", end: rampEnd(),
    };
    return groups.map((group, i) => {
      const part = (size, n) => [Math.floor((size * i) / n), Math.floor((size * (i + 1)) / n)];
      const [x, right] = isWide ? part(canvas.width, groups.length) : [0, canvas.width];
      const [y, bottom] = isWide ? [0, canvas.height] : part(canvas.height, groups.length);
      const points = [], lines = [];
      grid(lines, look);
      group.forEach((name, index) => addLayer(points, lines, name, index, look));
      if (!isBeside && $("links").checked) addLinks(lines, group, look);
      return {
        x, y, width: Math.max(1, right - x), height: Math.max(1, bottom - y), names: group,
        points: new Float32Array(points), lines: new Float32Array(lines),
      };
    });
  };

  const addLayer = (points, lines, name, index, look) => {
    const now = scene(), layer = now.layer(name, state.t), own = colorOf(name);
    const errors = look.byError ? now.errors(name, state.t, layer) : null;
    const radius = Math.max(0.003, Math.min(0.02, 0.34 / Math.sqrt(now.n)));
    const isCloud = !layer.isParticles;
    // Of many ways only some: they would hide the points.
    const every = Math.ceil(now.classes.filter((kind) => kind === MOVING).length / MAX_WAYS) || 1;
    for (let i = 0; i < layer.n; i++) {
      const kind = isCloud ? layer.classes[i] : now.classes[i];
      const isMoved = !isCloud && distance(layer.places, i, now.start, i) > LEAST_WAY_M;
      // Where layers lie upon each other, points that stay are drawn once.
      if (index > 0 && kind === STATIC && !isMoved) continue;
      let color = Array.from(layer.colors.subarray(3 * i, 3 * i + 3));
      let isDimmed = false;
      if (errors) {
        color = ramp(errors[i] / look.end);
      } else if (look.dims && (kind === STATIC || kind === ROBOT)) {
        isDimmed = !(kind === STATIC && isMoved);
        if (isDimmed) color = mix(color, look.ground, (kind === STATIC ? 0.72 : 0.5) * look.dimming);
      }
      const hasRing = !look.isBeside && !isDimmed && kind !== STATIC && !errors;
      const ring = hasRing || (isMoved && kind === STATIC && !errors) ? own : color;
      const shape = index === 0 ? 0 : index === 1 ? 1 : 2;
      const size = radius * (kind === STATIC ? 0.8 : 1) * (shape === 1 ? 1.25 : 1);
      const at = layer.places.subarray(3 * i, 3 * i + 3);
      points.push(at[0], at[1], at[2], ...color, ...ring, size, shape);
      if (i % every === 0 && $("trails").checked && isMoved && (kind === MOVING || kind === ROBOT)) {
        const faint = mix(errors ? color : own, look.ground, kind === ROBOT ? 0.86 : 0.66);
        addWay(lines, now, name, i, faint);
      }
    }
  };

  // The way of a particle from the start until now.
  const addWay = (lines, now, name, i, color) => {
    const width = 3 * now.n, whole = Math.floor(state.t);
    const all = name === "truth" ? now.truth : name === "model" ? now.prediction : null;
    const last = name === "truth" ? now.data.true_steps : now.steps;
    let from = [0, 1, 2].map((axis) => now.start[3 * i + axis]);
    const go = (to) => {
      lines.push(...from, ...color, ...to, ...color);
      from = to;
    };
    if (!all) {
      const velocity = now.velocities[name], steps = state.t * now.data.stride;
      return go(from.map((x, axis) => x + steps * velocity[3 * i + axis]));
    }
    const at = (step) => [0, 1, 2].map((axis) => all[step * width + 3 * i + axis]);
    for (let step = 1; step <= Math.min(whole, last); step++) go(at(step));
    if (state.t > whole && whole < last) go(mix(at(whole), at(whole + 1), state.t - whole));
  };

  // Lines from where moving points truly are to where they are predicted.
  const addLinks = (lines, names, look) => {
    const now = scene();
    if (!now.truth || state.t > now.data.true_steps || !names.includes("truth")) return;
    const truth = now.layer("truth", state.t).places;
    for (const name of names.filter((other) => other !== "truth")) {
      const places = now.layer(name, state.t).places;
      const color = mix(colorOf(name), look.ground, 0.2);
      for (let i = 0; i < now.n; i++) {
        if (now.classes[i] !== MOVING) continue;
        lines.push(...truth.subarray(3 * i, 3 * i + 3), ...color);
        lines.push(...places.subarray(3 * i, 3 * i + 3), ...color);
      }
    }
  };

  // The ground of the workspace, a line each 0.1 m.
  const grid = (lines, look) => {
    const [min, max] = heads.workspace, z = Math.max(min[2], Math.min(0, max[2])) - 0.004;
    const color = mix(look.ground, hex("--soft"), 0.22);
    const every = Math.max(0.1, Math.max(max[0] - min[0], max[1] - min[1]) / 40);
    for (const [along, across] of [[0, 1], [1, 0]]) {
      for (let k = Math.ceil(min[along] / every); k * every <= max[along]; k++) {
        const end = (far) => {
          const point = [0, 0, z];
          point[along] = k * every;
          point[across] = far ? max[across] : min[across];
          return point;
        };
        lines.push(...end(false), ...color, ...end(true), ...color);
      }
    }
  };

  const ask = () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame((time) => {
      isAsked = false;
      draw(time);
    });
  };

  const draw = (time) => {
    if (state.isPlaying) play(time);
    const ratio = Math.min(devicePixelRatio || 1, 2.5);
    const [width, height] = [canvas.clientWidth * ratio, canvas.clientHeight * ratio].map(Math.round);
    if (canvas.width !== width || canvas.height !== height) {
      [canvas.width, canvas.height] = [Math.max(1, width), Math.max(1, height)];
    }
    const all = panes();
    drawing.draw(all, camera, hex("--stage"));
    label(all, ratio);
    showScale();
    $("links-label").hidden = $("layout").value === "beside";
  };

  const label = (all, ratio) => {
    const tags = all.flatMap((pane) => pane.names.map((name, i) => {
      const tag = document.createElement("span");
      tag.textContent = labelOf(name);
      tag.className = name;
      tag.style.left = `${pane.x / ratio}px`;
      tag.style.top = `${pane.y / ratio + 32 * i}px`;
      return tag;
    }));
    $("labels").replaceChildren(...tags);
  };

  const showScale = () => {
    const byError = $("color").value === "error";
    $("scale").hidden = !byError;
    if (!byError) return;
    const c = $("ramp").getContext("2d");
    for (let x = 0; x < 128; x++) {
      c.fillStyle = css(ramp(x / 127));
      c.fillRect(x, 0, 1, 1);
    }
    $("scale-high").textContent = `${Math.round(1000 * rampEnd())} mm or more`;
    $("scale-what").textContent = scene().seen
      ? "to the nearest point seen then (points are sparse: 10 mm or so mean nothing)"
      : "distance to the true position";
  };

  // --- Time.

  const STEP_MS = 420, REST_MS = 900;

  const play = (time) => {
    const elapsed = Math.min(100, time - (state.last || time));
    state.last = time;
    const end = scene().steps + REST_MS / STEP_MS;
    state.run = (state.run ?? 0) + elapsed / STEP_MS;
    if (state.run > end) state.run = 0;
    setTime(Math.min(scene().steps, state.run));
  };

  const setPlaying = (isPlaying) => {
    state.isPlaying = isPlaying;
    state.last = 0;
    state.run = state.t >= scene().steps ? 0 : state.t;
    $("play").textContent = isPlaying ? "Pause" : "Play";
    $("play").setAttribute("aria-pressed", isPlaying);
    setTime(isPlaying ? state.run : Math.round(state.t));
  };

  const stepBy = (by) => {
    if (state.isPlaying) setPlaying(false);
    setTime(Math.max(0, Math.min(scene().steps, Math.round(state.t) + by)));
  };

  // --- Mouse, fingers and keys.

  const listen = () => {
    $("frame").addEventListener("change", () => choose(Number($("frame").value)));
    $("previous").addEventListener("click", () => choose(state.scene - 1));
    $("next").addEventListener("click", () => choose(state.scene + 1));
    $("step").addEventListener("input", () => {
      if (state.isPlaying) setPlaying(false);
      setTime(Number($("step").value));
    });
    $("play").addEventListener("click", () => setPlaying(!state.isPlaying));
    $("reset").addEventListener("click", home);
    for (const id of ["color", "layout", "baseline", "show-truth", "show-model", "show-baseline", "dim", "trails", "links"]) {
      $(id).addEventListener("change", () => {
        if (id === "baseline") $("show-baseline").checked = true;
        ask();
      });
    }
    addEventListener("resize", ask);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ask);
    canvas.addEventListener("keydown", key);
    canvas.addEventListener("wheel", (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey) return;
      event.preventDefault();
      camera.zoomBy(Math.exp(-0.0015 * event.deltaY));
      ask();
    }, { passive: false });
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => {
      drawing = new GlDrawing(canvas);
      ask();
    });
    drag();
  };

  const key = (event) => {
    const shift = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (shift && event.shiftKey) camera.shift(-0.06 * shift[0], -0.06 * shift[1]);
    else if (shift) camera.turn(0.12 * shift[0], -0.12 * shift[1]);
    else if (event.key === "+" || event.key === "=") camera.zoomBy(1.15);
    else if (event.key === "-" || event.key === "−") camera.zoomBy(1 / 1.15);
    else if (event.key === "Home") home();
    else if (event.key === ",") stepBy(-1);
    else if (event.key === ".") stepBy(1);
    else if (event.key === " ") setPlaying(!state.isPlaying);
    else return;
    event.preventDefault();
    ask();
  };

  const drag = () => {
    const fingers = new Map();
    const middle = () => {
      const all = [...fingers.values()];
      const mean = (axis) => all.reduce((sum, at) => sum + at[axis], 0) / all.length;
      const at = [mean(0), mean(1)];
      const spread = all.reduce((sum, [x, y]) => sum + Math.hypot(x - at[0], y - at[1]), 0);
      return { at, spread };
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) return;
      const before = middle();
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      const after = middle();
      const [dx, dy] = [after.at[0] - before.at[0], after.at[1] - before.at[1]];
      const height = canvas.clientHeight;
      const shifts = fingers.size > 1 || event.shiftKey || (event.buttons & 6) !== 0;
      if (shifts) camera.shift(dx / height, -dy / height);
      else camera.turn((4 * dx) / height, (4 * dy) / height);
      if (fingers.size > 1 && before.spread > 0) camera.zoomBy(after.spread / before.spread);
      ask();
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
    }
  };

  if (scenes.length) start();
}
