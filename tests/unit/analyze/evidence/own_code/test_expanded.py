"""Tensors with more elements than their storage has room for, which a line passes to native code; and others."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import expanded as module
from pytracer.analyze.evidence.own_code.expanded import Expanded, behind_evidence, expanded_behind, expanded_tensor
from pytracer.analyze.evidence.wild.expanded_argument import expanded_argument
from pytracer.decode.types.snapshot import Argument, Holder, PythonFrame

STORAGE: Any = SimpleNamespace(base=0x1000, nbytes=16)
FITS = ((4,), (1,))
ONE_STEP = "    addresses = [item.data_ptr() for item in parts]\n    library.add(*addresses)\n"


@pytest.fixture(autouse=True)
def _of_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "own_function", lambda view: SimpleNamespace(name="add"))


Held = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]


def found_in(folder: Path, body: str, held: Held, function: str = "step") -> Expanded | None:
    """What the line passes of that storage."""
    return expanded_tensor(crashed_in(folder, body, held, function), STORAGE)


def crashed_in(folder: Path, body: str, held: Held, function: str = "step") -> Any:
    """A process that crashed in the last line of `body`. `held`: variables with that storage, sizes and strides."""
    file = folder / "train.py"
    file.write_text(f"def step(parts):\n{body}", encoding="utf-8")
    frame = PythonFrame(function=function, file=str(file), line=1 + body.count("\n"))
    tensors = [
        Argument(0, 0x1000, _count(sizes), 0, sizes, len(sizes), "float32", "cpu", None, None, None, None, None, "held",
                 False, strides)
        for sizes, strides in held.values()
    ]  # fmt: skip
    holders = [Holder("local", name, 0x1000, frame, True, 1, elements=_count(held[name][0])) for name in held]
    crash = SimpleNamespace(python_stack=(frame,), holders=tuple(holders), arguments=tuple(tensors))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, threads=(), pid=1)
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot))


def _count(sizes: tuple[int, ...]) -> int:
    return min(sizes[0] * (sizes[1] if len(sizes) > 1 else 1), 0xFFFFFFFF)


def test_tensor_of_stride_zero_is_no_row_of_numbers(tmp_path: Path) -> None:
    """The next step names it, with the call that makes a copy; of a gradient also where such come from."""
    found = found_in(tmp_path, "    library.add(grad.data_ptr())\n", {"grad": ((1000, 4), (0, 0))}, "Scale.backward")
    assert found is not None
    assert found.words == "`grad` [1000, 4] is expanded, 4000 elements over a storage of 16 bytes"
    advice = found.advice(writes=False)
    assert "Write `grad = grad.contiguous()` before line 2, and so" in advice
    assert "The gradient of sum()" in advice and "go on with it" in found.advice(writes=True)


def test_windows_overlap_and_a_large_copy_is_told(tmp_path: Path) -> None:
    """`unfold()` has no stride of zero."""
    found = found_in(tmp_path, "    library.add(rows.data_ptr())\n", {"rows": ((1 << 20, 1 << 10), (1, 1))})
    assert found is not None and "overlaps itself" in found.words
    assert "a copy takes 4.0 GiB" in found.advice(writes=False)


def test_item_of_the_list_whose_pointers_were_taken_before(tmp_path: Path) -> None:
    """One line above the call."""
    found = found_in(tmp_path, ONE_STEP, {"parts[0]": ((1000, 4), (0, 1))})
    assert found is not None and "Call .contiguous() on it before its data_ptr()" in found.advice(writes=False)


@pytest.mark.parametrize(
    ("body", "held"),
    [
        ("    library.add(x.data_ptr())\n", {"x": FITS}),  # contiguous, and simply too small
        ("    library.add(x.data_ptr(), wide)\n", {"x": FITS, "wide": ((1000, 4), (0, 1))}),  # either may be meant
        ("    library.add(wide.data_ptr(), wide.stride(0))\n", {"wide": ((1000, 4), (0, 1))}),  # C counts by these
        ("    wide = x.expand(9, 4)\n    library.add(x.data_ptr())\n", {"x": FITS, "wide": ((9, 4), (0, 1))}),
    ],
)
def test_nothing_is_said_where_a_tensor_that_fits_may_have_been_passed(
    body: str, held: dict[str, tuple[tuple[int, ...], tuple[int, ...]]], tmp_path: Path
) -> None:
    """Nor of an expanded one that the line does not pass."""
    assert found_in(tmp_path, body, held) is None


def test_functions_of_torch_know_strides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where one of them left the storage, the tensor's layout is not why."""
    monkeypatch.setattr(module, "own_function", lambda view: None)
    assert found_in(tmp_path, "    library.add(grad.data_ptr())\n", {"grad": ((1000, 4), (0, 0))}) is None


WIDE = "    library.encode(wide.data_ptr(), table.data_ptr())\n"


@pytest.mark.parametrize(
    ("addr", "sizes", "strides", "found"),
    [
        (0x1000 + 5000, (1000, 4), (0, 1), True),  # 16,000 bytes in a row
        (0x1000 + 16_000, (1000, 4), (0, 1), False),  # behind all of them
        (0x1000 + 8, (1000, 4), (0, 1), False),  # in its memory
        (0x800, (1000, 4), (0, 1), False),  # before it
        (0x1000 + 5000, (4,), (1,), False),  # it fits
    ],
)
def test_address_that_the_elements_in_a_row_would_reach(
    addr: int, sizes: tuple[int, ...], strides: tuple[int, ...], found: bool, tmp_path: Path
) -> None:
    """Whatever other storage lies between."""
    view = crashed_in(tmp_path, WIDE, {"wide": (sizes, strides)})
    view.place = SimpleNamespace(addr=addr)
    view.space = SimpleNamespace(live_around=lambda base: STORAGE if base == 0x1000 else None)
    wide = expanded_behind(view)
    assert (wide is not None) == found
    if wide is not None:
        assert behind_evidence(view, wide).sentence == (
            "the address is 4984 bytes behind the 16 bytes of `wide`, whose elements would take 15.6 KiB in a row"
        )


@pytest.mark.parametrize(("how", "strides"), [("held", (0, 0)), ("reference", (0, 0)), ("reference", (4, 1))])
def test_expanded_tensor_explains_an_address_near_nothing(how: str, strides: tuple[int, int], tmp_path: Path) -> None:
    """Its 16 bytes end a heap; a tensor that the stack refers to, too, is recorded as that alone."""
    view = crashed_in(tmp_path, "    library.add(grad.data_ptr())\n", {"grad": ((1000, 4), strides)}, "Scale.backward")
    crash = view.crash
    crash.arguments = tuple(replace(item, how=how) for item in crash.arguments)
    storage = SimpleNamespace(base=0x1000, nbytes=16 if 0 in strides else 16000)
    view.space = SimpleNamespace(live_around=lambda base: storage)
    view.place = SimpleNamespace(addr=0x1000 + 12000)
    found = expanded_argument(view)
    assert (found is not None) == (0 in strides)
    if found is not None:
        assert found.clause(view) == ": `grad` [1000, 4] is expanded, 4000 elements over a storage of 16 bytes"
        assert (found.verdict_class, found.confidence(view), found.is_explained) == ("out-of-bounds", "likely", True)
