"""What tests share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import forecloud as fc

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "data" / "tiny_push"


def pytest_configure() -> None:
    """A shell starts what runs in its background with Ctrl-C ignored: here it is listened to."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz", type=int, default=10_000, help="calls that are fuzzed")
    parser.addoption("--seed", type=int, default=1, help="seed of the fuzzed calls")


@pytest.fixture(scope="session")
def model() -> fc.Model:
    return fc.Model(ROOT / "models" / "small.safetensors")


@pytest.fixture(scope="session")
def recording() -> fc.Recording:
    return fc.Recording(TINY)


@pytest.fixture(scope="session")
def frames(recording: fc.Recording) -> list[fc.Frame]:
    return list(recording)


@pytest.fixture(scope="session")
def predictions(recording: fc.Recording, frames: list[fc.Frame], model: fc.Model) -> list[fc.Prediction]:
    predictor = fc.Predictor.of(recording, model)
    return [prediction for prediction in map(predictor.step, frames) if prediction is not None]
