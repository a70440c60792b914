"""The closed loop: a simulated robot that is told what to do by a planner, and scored.

`python -m sim.closed_loop --help`; what came out: docs/src/guide/planning.md.
"""
