"""Makes first_steps.ipynb beside it: the cells below, run in the repository's root, with what they print and
draw. Needs the package, and `pip install matplotlib nbclient nbformat ipykernel`.

    python docs/src/guide/first_steps/make.py
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
CELLS = [
    """# First steps
Forecloud from Python: a recording, a prediction, how good it is, and what it is made of. From a clone:
`pip install .`, then this notebook in the repository's root. All there is: [Python](../python.md).""",
    """import forecloud as fc

recording = fc.Recording("data/demo_tumble")
predictor = fc.Predictor.of(recording)
seen = [(frame, predictor.step(frame)) for frame in recording]
print(recording.cameras, len(seen), "frames,", sum(p is not None for _, p in seen), "predictions")""",
    """## What the cameras see
Images are views of the recording's own bytes; `cloud` gives the coloured points of all cameras in the world frame.""",
    """import matplotlib.pyplot as plt
import numpy as np

plt.rcParams.update({"figure.dpi": 60, "savefig.bbox": "tight"})
# The frame of which things, apart from the robot, are predicted to move most.
def motion(prediction):
    return np.abs(prediction.displacements[:, prediction.situations >= fc.SITUATIONS.index("moving")]).sum()

frame, prediction = max((pair for pair in seen if pair[1]), key=lambda pair: motion(pair[1]))
fig, axes = plt.subplots(1, 3, figsize=(12, 3))
axes[0].imshow(frame.cameras[0].color), axes[0].set_title(frame.cameras[0].name)
axes[1].imshow(frame.cameras[0].depth_m(), cmap="viridis"), axes[1].set_title("depth (m)")
positions, colors, sources = frame.cloud([[-0.45, -0.5, -0.015], [0.55, 0.5, 0.65]])
axes[2].scatter(positions[::7, 0], positions[::7, 1], c=colors[::7] / 255, s=1)
axes[2].set_aspect("equal"), axes[2].set_title(f"{len(positions)} points from above (m)");""",
    """## What will be
`displacements` tells for each particle and step how far it goes; `sigma` how far off that may be.""",
    """paths = prediction.paths()                               # [steps + 1, particles, 3]
truth = recording.true_motion(frame, prediction.positions, prediction.sources)
moves = (np.linalg.norm(paths[-1] - paths[0], axis=1) > 0.01) & (prediction.situations != fc.SITUATIONS.index("robot"))
fig, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharex=True, sharey=True)
true = np.concatenate([prediction.positions[None], truth.positions])
for axis, ways, name in [(axes[0], paths, "predicted"), (axes[1], true, "true")]:
    axis.scatter(*paths[0, :, [1, 2]], c=prediction.colors, s=2)
    axis.plot(ways[:, moves, 1], ways[:, moves, 2], color="tab:orange" if name == "predicted" else "tab:green", lw=0.6)
    axis.set_title(f"{name}, half a second (side view, m)"), axis.set_aspect("equal")
print(f"{moves.sum()} particles of things move; sigma after 5 steps: {1e3 * np.median(prediction.sigma[-1, moves]):.0f} mm (median)")""",
    """## How good that is
`replay` is `forecloud replay` as a table (`.dataframe()` where pandas is installed).""",
    """table = fc.replay("data/demo_tumble", progress=False)
for method in ("model", "nothing_moves", "velocity_estimated"):
    rows = (table["method"] == method) & (table["class"] == "object_moving") & (table["task"] == "all")
    plt.plot(table["secs"][rows], table["mean_mm"][rows], "o-", label=method.replace("_", " "))
plt.xlabel("seconds ahead"), plt.ylabel("error of moving points (mm)"), plt.legend(), plt.gcf().set_size_inches(5, 3);""",
    """## What it is made of
The local layers attend under a mask M = Σ f_t W^t over the walks of the k-NN graph, exact by enumeration. Sampled
walks estimate the same.""",
    """points = prediction.positions
graph = fc.knn(points, k=3)
from_here = int(np.argmax(moves))
exact = graph.features(n_hops=3)
row = slice(*exact.starts[from_here : from_here + 2])
print("walks of 3 hops reach", exact.nodes[row].size, "particles; (W^t)_ij of the first of them:", exact.loads[row][0])

small = fc.knn(points[::16], k=3)
wanted = small.features(3).dense([1, 0.5, 0.25, 0.125])
ns = [4, 16, 64, 256]
for sampler in ("iid", "antithetic", "repelling"):
    off = []
    for n in ns:
        walks = small.features(3, n_walks=n, p_halt=0.2, sampler=sampler).dense([1, 0.5, 0.25, 0.125])
        off.append(np.linalg.norm(walks - wanted) / np.linalg.norm(wanted))
    plt.loglog(ns, off, "o-", label=sampler)
plt.xlabel("walks from each node"), plt.ylabel("relative error of M"), plt.legend(), plt.gcf().set_size_inches(5, 3);""",
    """for name, about in fc.masks().items():
    mask = small.mask(name, points[::16])
    print(f"{name:15}", f"{mask.n_params} parameters;", about)""",
    """## Labels without truth
`hindsight` tells where points went by what later frames show: what recordings of your own are learnt from.""",
    """box = predictor.config["workspace"] or predictor.model.config["workspace"]
at = next(i for i, (f, _) in enumerate(seen) if f.stamp_ns == frame.stamp_ns)
clouds = []
for later, _ in seen[at : at + 3]:
    clouds.append(fc.particles(*later.cloud(box), 6000, workspace=box, support_stride=4))
labels = fc.hindsight(clouds)
true = recording.true_motion(frame, clouds[0].positions, clouds[0].sources, horizon=2)
moving = (true.classes[0] == fc.CLASSES.index("moving"))
sure = moving & (labels.confidences[0] > 0.5)
went = np.linalg.norm(true.positions[0] - clouds[0].positions, axis=1)
off = np.linalg.norm(labels.positions[0] - true.positions[0], axis=1)
print(f"of {moving.sum()} moving points {sure.sum()} are sure; they went {1e3 * np.median(went[sure]):.0f} mm, "
      f"and labels are off by {1e3 * np.median(off[sure]):.1f} mm (medians)")""",
    """## See all of it
In a window of rerun, or as a file to pass on (`pip install '.[rerun]'`; `forecloud view data/demo_tumble` does the
same): `fc.show("data/demo_tumble", save="demo.rrd")`.""",
]


def main() -> None:
    notebook = nbformat.v4.new_notebook()
    for number, text in enumerate(CELLS):
        is_words = not text.startswith(("import ", "paths =", "table =", "points =", "for name", "box ="))
        make = nbformat.v4.new_markdown_cell if is_words else nbformat.v4.new_code_cell
        # Ids by number, so that the file stays the same where nothing changed.
        notebook.cells.append(make(text, id=f"cell-{number}"))
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": HERE.parents[3]}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, HERE / "first_steps.ipynb")


if __name__ == "__main__":
    main()
