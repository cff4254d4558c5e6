"""An array by whose numbers the failing line of C indexes, where the sizes that are passed beside it are right."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import leading_arrays as module
from pytracer.analyze.evidence.own_code.leading_arrays import leading_arrays
from pytracer.analyze.evidence.own_code.own_place import OwnPlace
from pytracer.analyze.evidence.own_code.own_signature import definitions
from pytracer.report.job import PythonFrame

CROP = """\
void crop(const float *map, int h, int w, const float *rois, int k, float *out) {
    for (int r = 0; r < k; r++) {
        float x = rois[2 * r], y = rois[2 * r + 1];
        int xx = (int)x, yy = (int)y;
        out[r] = map[yy * w + xx];
    }
}
"""
PROGRAM = "self.fn(fmap.data_ptr(), h, w, boxes.data_ptr(), len(boxes), y.data_ptr())\n"
BASE = 0x7000


def found(
    monkeypatch: pytest.MonkeyPatch,
    *,
    source: str = CROP,
    elements: int = 64,
    line: str = PROGRAM,
    shape: tuple[int, ...] | None = None,
    values: tuple[int, ...] = (8, 8, 5),
) -> Any:
    running = next(text.strip() for text in source.splitlines() if "map[" in text)
    monkeypatch.setattr(module, "own_place", lambda view: OwnPlace("crop", "crop.c:5", running))
    monkeypatch.setattr(module, "program_frames", lambda view: [PythonFrame(file="/t/train.py", line=1)])
    monkeypatch.setattr(module, "syntax_tree", lambda snapshot, frame: ast.parse(line))
    monkeypatch.setattr(
        module, "own_definition", lambda view, name: next(definitions("/t/crop.c", source.splitlines(), name), None)
    )
    holder = SimpleNamespace(base=BASE, elements=elements)
    arguments = [SimpleNamespace(base=BASE, elements=elements, sizes=shape)] if shape is not None else []
    view: Any = SimpleNamespace(
        place=SimpleNamespace(storage=SimpleNamespace(base=BASE)),
        crash=SimpleNamespace(holders=[holder], arguments=arguments),
        process=SimpleNamespace(snapshot=None),
    )  # fmt: skip
    return leading_arrays(view, values)


def test_numbers_of_an_array_come_first_where_the_sizes_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes in pixels, of a map that is smaller than the picture: also where the function has another name there."""
    item = found(monkeypatch)
    assert item is not None
    assert item.advice == (
        "Check the values of `boxes` (min(), max()), which line 1 passes: `out[r] = map[yy * w + xx]` (crop.c:5) uses "
        "numbers made of them as indices, unchecked. The sizes fit: that memory has 8 * 8 elements."
    )


@pytest.mark.parametrize(
    "how",
    [
        {"elements": 60},  # a size may be wrong
        {"source": CROP.replace("map[yy * w + xx]", "map[r]")},
        {"line": "self.fn(fmap.data_ptr(), h, w)\n"},
    ],
)
def test_arrays_that_may_not_lead_there_are_not_named(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, **how) is None


@pytest.mark.parametrize(
    ("shape", "named"),
    [((16, 4), True), ((1, 1, 16, 4), True), ((4, 16), False), (None, False), ((64,), False)],
)
def test_sizes_that_may_be_exchanged_do_not_fit(
    shape: tuple[int, ...] | None, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`w, h = map.shape`: the product is the same."""
    assert (found(monkeypatch, shape=shape, values=(16, 4, 5)) is not None) == named


@pytest.mark.parametrize(
    "check",
    [
        "        if (yy >= h || xx >= w) continue;\n",
        "        xx = clampi(xx, 0, w - 1);\n",
        "        yy = yy < h ? yy : h - 1;\n",
    ],
)
def test_what_the_function_checks_is_not_called_unchecked(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, source=CROP.replace("        out[r]", f"{check}        out[r]")) is None
