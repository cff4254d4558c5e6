"""Numbers that the program sets on modules of torch, of which a line of torch's own passes one to native code."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.set_divisor import SetDivisor, set_divisor
from pytracer.decode.types.snapshot import PythonFrame

transformer = pytest.importorskip("torch.nn.modules.transformer")

PRUNE = """\
def prune(model, scores):
    for layer, keep in zip(model.layers, scores):
        kept = int(keep.sum())
        layer.self_attn.num_heads = kept
def run(model, x):
    return model(x)
"""


def found(folder: Path, source: str, *, inside: str = "torch._transformer_encoder_layer_fwd(") -> SetDivisor | None:
    """Where the innermost frame is torch's line with that text, and the program's is the last of `source`."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    lines = Path(transformer.__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if inside in text)
    stack = (
        PythonFrame("TransformerEncoderLayer.forward", transformer.__file__, line),
        PythonFrame("run", str(file), len(source.splitlines())),
    )
    snapshot = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9)
    crash = SimpleNamespace(python_stack=stack, threads=(), numbers=(), holders=())
    view: Any = SimpleNamespace(
        process=SimpleNamespace(snapshot=snapshot), crash=crash, region_opener=None, python_stack=stack
    )
    return set_divisor(view)


def test_line_that_sets_what_torch_passes_is_named(tmp_path: Path) -> None:
    item = found(tmp_path, PRUNE)
    assert item is not None and item.frame.line == 4
    assert item.words == (
        "`num_heads`, which TransformerEncoderLayer.forward passes, is probably 0: it is set by line 4 "
        "(`layer.self_attn.num_heads = kept`)"
    )
    assert item.advice.startswith("Keep `kept` from being 0 at line 4")
    assert "which comes from line 3 (`kept = int(keep.sum())`)" in item.advice
    assert "The constructor of MultiheadAttention checks `num_heads`" in item.advice


def test_setattr_is_read_as_well(tmp_path: Path) -> None:
    source = PRUNE.replace("layer.self_attn.num_heads = kept", 'setattr(layer.self_attn, "num_heads", kept)')
    item = found(tmp_path, source)
    assert item is not None and item.name == "num_heads"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self_attn.num_heads = kept", "self_attn.dropout_rate = kept"),  # that line passes no such attribute
        ("self_attn.num_heads = kept", "self_attn.num_heads = 4"),
        ("kept = int(keep.sum())", "kept = max(int(keep.sum()), 1)"),
        ("kept = int(keep.sum())", "kept = int(keep.sum())\n        if not kept: continue"),
        ("def run", "def other(m, n):\n    m.num_heads = n\ndef run"),  # which of the two it was is not known
    ],
)
def test_other_attributes_and_several_lines_are_left_alone(old: str, new: str, tmp_path: Path) -> None:
    assert found(tmp_path, PRUNE.replace(old, new)) is None
