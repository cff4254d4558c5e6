"""Arrays with a negative stride that from_dlpack() cannot take, and other errors that nobody caught."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import negative_strides as module
from pytracer.analyze.evidence.own_code.negative_strides import NegativeStrides, negative_strides
from pytracer.decode.types.snapshot import PythonFrame
from tests.support.scenarios import program_in

SOURCE = """class Flip:
    def __call__(self, image):
        return image[:, ::-1] if random() < 0.5 else image
class ToTensor:
    def __call__(self, image):
        return torch.from_dlpack(image).permute(2, 0, 1)
"""
REFUSED = "Storage size calculation overflowed with sizes=[32, 32, 3] and strides=[120, -3, 1]"


def refused(
    run: Path, monkeypatch: pytest.MonkeyPatch, what: str = REFUSED, source: str = SOURCE
) -> NegativeStrides | None:
    """What the program's last line threw."""
    monkeypatch.setattr(module, "cpp_exception", lambda view: SimpleNamespace(type="c10::Error", what=what))
    frame = PythonFrame("ToTensor.__call__", str(program_in(run, source)), len(source.splitlines()))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=1 << 62, pid=7)
    view: Any = SimpleNamespace(
        crash=SimpleNamespace(python_stack=(frame,)), process=SimpleNamespace(snapshot=snapshot)
    )
    return negative_strides(view)


def test_line_that_flips_the_array_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the copy to make, at either line."""
    found = refused(run, monkeypatch)
    assert found is not None
    assert found.what == (
        "from_dlpack() at line 6 was given an array with a negative stride (`image`, strides [120, -3, 1]), such as "
        "`image[:, ::-1]` at line 3 makes, and what torch then throws cannot be caught"
    )
    assert found.advice.startswith(
        "Pass `np.ascontiguousarray(image)` to from_dlpack() at line 6, or add .copy() to `image[:, ::-1]` at line 3:"
    )


@pytest.mark.parametrize("flips", ["np.flip(image, 1)", "np.rot90(image)", "numpy.fliplr(image)"])
def test_functions_of_numpy_flip_too(flips: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each a view."""
    found = refused(run, monkeypatch, source=SOURCE.replace("image[:, ::-1]", flips))
    assert found is not None
    assert found.flips == (f"`{flips}` at line 3",)


def test_no_line_is_named_where_none_or_many_flip(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stride is known all the same; torch.flip() copies."""
    for text in ("torch.flip(image, [1])", "image[::-1][:, ::-1][:, :, ::-1]"):
        found = refused(run, monkeypatch, source=SOURCE.replace("image[:, ::-1]", text))
        assert found is not None
        assert "such as" not in found.what


@pytest.mark.parametrize(
    ("what", "source"),
    [
        (REFUSED.replace("-3", "3"), SOURCE),  # really too large
        ("another error", SOURCE),
        (REFUSED, SOURCE.replace("torch.from_dlpack(image)", "torch.as_strided(image, (2,), (-1,))")),
    ],
)
def test_other_errors_are_left_alone(what: str, source: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-alikes."""
    assert refused(run, monkeypatch, what, source) is None
