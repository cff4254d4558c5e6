"""What the line of a native crash passes: numbers, tensors that do not fit, states of another size."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence import passed as module
from pytracer.analyze.evidence import state_sizes
from pytracer.decode.types.snapshot import HeldNumber, Holder, PythonFrame

SOURCE = "def step(library, files, index, out, sizes):\n    {}\n\nstep(1, 2, 3, 4, 5)\n"


def view_of(
    folder: Path,
    line: str,
    numbers: dict[str, int] | None = None,
    *,
    version: tuple[int, int] = (1, 7),
    environment: dict[str, str] | None = None,
    tensors: dict[str, tuple[int, int]] | None = None,
    addr: int = 0,
) -> Any:
    """A process that crashed in what that line calls. `tensors`: base and bytes."""
    file = folder / "train.py"
    file.write_text(SOURCE.format(line), encoding="utf-8")
    frame = PythonFrame(function="step", file=str(file), line=2)
    crash = SimpleNamespace(
        arrays=(),
        python_stack=(frame,),
        registers={},
        steps_done=("HOLDERS",),
        numbers=tuple(HeldNumber(name, value, frame, 0) for name, value in (numbers or {}).items()),
        holders=(
            Holder("local", "library", 1, frame, True, 1, elements=1),
            *(Holder("local", n, base, frame, True, 1, elements=nb // 4) for n, (base, nb) in (tensors or {}).items()),
        ),
    )
    snapshot = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, version=version, environment=environment or {})
    live = {base: SimpleNamespace(base=base, nbytes=nbytes) for base, nbytes in (tensors or {}).values()}
    space = SimpleNamespace(live_around=live.get)
    place = SimpleNamespace(addr=addr)
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot), space=space, place=place)


@pytest.fixture(autouse=True)
def _no_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_operator", lambda view: None)
    monkeypatch.setattr(module, "own_function", lambda view: SimpleNamespace(name="decode"))


def test_numbers_are_named_with_values_and_lists_as_such(tmp_path: Path) -> None:
    """Not those that only choose what is passed, and not those of another call of the line."""
    numbers = {"index": 33, "sizes[0]": 3, "sizes[1]": 70_000}
    view = view_of(tmp_path, "print(index, library.decode(files[index], sizes, out.data_ptr()))", numbers)
    found = module.passed(view)
    assert found is not None
    assert found.numbers == ("`sizes` = [3, 70000]",)
    assert "Check `sizes` = [3, 70000], which line 2 passes" in module.length_advice(view, "general")


@pytest.mark.parametrize(
    ("line", "how", "lengths"),
    [
        ("library.decode(files[index], out.data_ptr())", {"numbers": {"index": 33}}, False),
        ("library.decode(files[index], out.data_ptr(), out.numel())", {}, True),
        ("library.decode(files, out.data_ptr(), 4096)", {}, True),
        ("library.decode(files, out.data_ptr())", {"version": (1, 6)}, None),  # numbers were not recorded
        ("library.decode(files, out.data_ptr())", {"environment": {"PYTRACER_NO_VALUES": "1"}}, None),
        ("library.decode(files, count())", {}, None),
    ],
)
def test_a_line_that_passes_no_length(line: str, how: dict[str, Any], lengths: bool | None, tmp_path: Path) -> None:
    """Only where it is known of all that it passes."""
    view = view_of(tmp_path, line, **how)
    found = module.passed(view)
    assert found is not None
    assert found.lengths is lengths
    says = module.length_advice(view, "general")
    assert says.startswith("Check the data that line 2 passes: it passes no length") == (lengths is False)
    assert (says == "general") == (lengths is not False)


@pytest.mark.parametrize(("addr", "found"), [(0x9000, True), (0x1010, False), (0x900000, False)])
def test_a_tensor_that_is_smaller_than_another_argument(addr: int, found: bool, tmp_path: Path) -> None:
    """The address lies behind the small one by less than the large one has; not inside of it, and not far away."""
    tensors = {"files": (0x1000, 256), "out": (0x100000, 65536)}
    small = module.small_argument(view_of(tmp_path, "library.decode(files, out)", tensors=tensors, addr=addr))
    assert (small is not None) == found
    if small is not None:
        assert (small.small, small.behind) == ("`files` (64 elements, 256 bytes)", addr - 0x1100)
        assert small.large.startswith("`out`")


@pytest.mark.parametrize(("nbytes", "differs"), [(4096, True), (64, False), (128, False), (16, False)])
def test_a_state_of_another_size_than_its_parameter(nbytes: int, differs: bool) -> None:
    """One of the same size is in order, and one that may only be of another type."""
    state = SimpleNamespace(name="exp_avg of table.weight", role="optimizer state", nbytes=64)
    parameter = SimpleNamespace(name="parameter table.weight", role="parameter", nbytes=nbytes)
    named = SimpleNamespace(
        of_storage=lambda storage, addr: ([state], []),
        with_name=lambda name: [parameter] if name == parameter.name else [],
    )
    place = SimpleNamespace(storage=SimpleNamespace(base=1))
    view: Any = SimpleNamespace(place=place, space=SimpleNamespace(uses=SimpleNamespace(named=named)))
    found = state_sizes.state_size(view)
    assert (found is not None) == differs
    assert found is None or (found.state, found.parameter, found.parameter_nbytes) == ("exp_avg", "table.weight", 4096)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("optimizer.load_state_dict(saved)\noptimizer.step()\n", "load_state_dict() of an optimizer (line 1)"),
        ("model.load_state_dict(saved)\noptimizer.step()\n", "Make a new optimizer after the parameter was replaced"),
    ],
)
def test_what_made_a_state_of_another_size(source: str, says: str, tmp_path: Path) -> None:
    """It was loaded, or the parameter has changed since."""
    file = tmp_path / "train.py"
    file.write_text(source, encoding="utf-8")
    frame = PythonFrame(function="<module>", file=str(file), line=2)
    snapshot = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9)
    view: Any = SimpleNamespace(
        crash=SimpleNamespace(python_stack=(frame,)), process=SimpleNamespace(snapshot=snapshot)
    )
    size = state_sizes.StateSize("exp_avg", "table.weight", 64, 4096)
    assert says in state_sizes.state_advice(view, size)
