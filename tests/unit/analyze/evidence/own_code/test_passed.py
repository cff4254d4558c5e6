"""What the line of a native crash passes: numbers, tensors that do not fit, states of another size."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators import state_sizes
from pytracer.analyze.evidence.own_code import passed as module
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
        mappings=(SimpleNamespace(start=0x5555_0000_0000, end=0x5555_0010_0000),),
        python_stack=(frame,),
        registers={},
        steps_done=("HOLDERS",),
        numbers=tuple(HeldNumber(name, value, frame, 0) for name, value in (numbers or {}).items()),
        holders=(
            Holder("local", "library", 1, frame, True, 1, elements=1),
            *(Holder("local", n, base, frame, True, 1, elements=nb // 4) for n, (base, nb) in (tensors or {}).items()),
        ),
    )
    snapshot = SimpleNamespace(
        argv=(), created_wall_ns=time.time_ns() + 10**9, version=version, environment=environment or {}
    )
    live = {base: SimpleNamespace(base=base, nbytes=nbytes) for base, nbytes in (tensors or {}).values()}
    space = SimpleNamespace(live_around=live.get)
    place = SimpleNamespace(addr=addr, storage=None)
    process = SimpleNamespace(snapshot=snapshot)
    return SimpleNamespace(crash=crash, process=process, space=space, place=place, native_stack=())


@pytest.fixture(autouse=True)
def _no_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_operator", lambda view: None)
    monkeypatch.setattr(module, "sparse_operator_advice", lambda view: None)
    monkeypatch.setattr(module, "unfit_operands", lambda view: None)
    monkeypatch.setattr(module, "own_function", lambda view: SimpleNamespace(name="decode"))
    monkeypatch.setattr(module, "wrapped_count", lambda view: None)
    monkeypatch.setattr(module, "are_too_small", lambda view, values, bases: False)


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


@pytest.mark.parametrize(("nbytes", "differs"), [(4096, True), (64, False), (128, False), (16, False)])
def test_a_state_of_another_size_than_its_parameter(nbytes: int, differs: bool) -> None:
    """One of the same size is in order, and one that may only be of another type."""
    state = SimpleNamespace(name="exp_avg of table.weight", role="optimizer state", nbytes=64)
    parameter = SimpleNamespace(name="parameter table.weight", role="parameter", nbytes=nbytes, base=2)
    named = SimpleNamespace(
        of_storage=lambda storage, addr: ([state], []),
        with_name=lambda name: [parameter] if name == parameter.name else [],
    )
    place = SimpleNamespace(storage=SimpleNamespace(base=1, origin=None))
    view: Any = SimpleNamespace(place=place, crash=None, space=SimpleNamespace(uses=SimpleNamespace(named=named)))
    found = state_sizes.state_size(view)
    assert (found is not None) == differs
    assert found is None or (found.state, found.parameter, found.parameter_nbytes) == ("exp_avg", "table.weight", 4096)


@pytest.mark.parametrize(("nbytes", "differs"), [(64, True), (4096, False), (1 << 20, False)])
def test_a_gradient_that_was_made_smaller(nbytes: int, differs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its storage; one in a larger bucket is in order."""
    gradient = SimpleNamespace(name="gradient of table.weight", role="gradient", nbytes=4096)
    parameter = SimpleNamespace(role="parameter", nbytes=4096, base=2)
    named = SimpleNamespace(of_storage=lambda storage, addr: ([gradient], []), with_name=lambda name: [parameter])
    place = SimpleNamespace(storage=SimpleNamespace(base=1, nbytes=nbytes))
    view: Any = SimpleNamespace(place=place, crash=None, space=SimpleNamespace(uses=SimpleNamespace(named=named)))
    found = state_sizes.state_size(view)
    assert (found is not None) == differs
    if found is not None:
        monkeypatch.setattr(state_sizes, "line_that_made", lambda view, base, also_failing: "line 17 in compress")
        monkeypatch.setattr(state_sizes, "line_words", lambda view: "line 23")
        says = state_sizes.state_advice(view, found)
        assert says.startswith("Give the gradient of table.weight, which line 17 in compress made, the shape of")


@pytest.mark.parametrize(("name", "found"), [("aten::_fused_adam_", True), ("aten::add", False)])
def test_state_of_a_fused_operator_whose_loop_ran_far(name: str, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is in nothing known; another operator does not take a state with its parameter."""
    state = SimpleNamespace(name="exp_avg of table.weight", role="optimizer state", nbytes=64)
    parameter = SimpleNamespace(role="parameter", nbytes=4096, base=2)
    named = SimpleNamespace(of_storage=lambda storage, addr: ([state], []), with_name=lambda name: [parameter])
    storage = SimpleNamespace(base=1, nbytes=64, origin=None)
    space = SimpleNamespace(uses=SimpleNamespace(named=named), live_around={1: storage}.get)
    process = SimpleNamespace(snapshot=SimpleNamespace(named={}))
    view: Any = SimpleNamespace(place=SimpleNamespace(storage=None, addr=1 << 40), space=space, process=process)
    operator = SimpleNamespace(name=name, tensors=(SimpleNamespace(item=SimpleNamespace(base=1)),))
    monkeypatch.setattr(state_sizes, "find_operator", lambda view: operator)
    assert (state_sizes.state_size(view) is not None) == found


@pytest.mark.parametrize(("parameter_ns", "replaced"), [(9, True), (3, False)])
def test_a_parameter_whose_memory_is_newer_than_the_state(
    parameter_ns: int, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line that gave it new memory is named; a state that was made later was loaded."""
    live = {
        1: SimpleNamespace(base=1, older=False, allocated=SimpleNamespace(mono_ns=5)),
        2: SimpleNamespace(base=2, older=False, allocated=SimpleNamespace(mono_ns=parameter_ns)),
    }
    view: Any = SimpleNamespace(space=SimpleNamespace(live_around=live.get))
    monkeypatch.setattr(state_sizes, "_loading_line", lambda view: None)
    monkeypatch.setattr(state_sizes, "line_that_made", lambda view, base, also_failing: "line 26 in resize")
    size = state_sizes.StateSize("exp_avg", "table.weight", 64, 4096, (1, 2))
    says = state_sizes.state_advice(view, size)
    assert says.startswith("Make a new optimizer after line 26 in resize, where table.weight got memory") == replaced


@pytest.mark.parametrize(("nbytes", "named"), [(4096, True), (32, False)])
def test_only_a_state_that_is_smaller_is_the_reason(nbytes: int, named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An access past the end of a larger one is not explained by its size."""
    size = state_sizes.StateSize("exp_avg", "table.weight", 64, nbytes)
    monkeypatch.setattr(state_sizes, "state_size", lambda view: size)
    monkeypatch.setattr(state_sizes, "find_operator", lambda view: None)
    view: Any = SimpleNamespace()
    says = state_sizes.small_state(view)
    assert (says is not None) == named
    assert says in (None, "`exp_avg` of table.weight (64 bytes) is smaller than the parameter (4096 bytes)")


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
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    view: Any = SimpleNamespace(
        crash=SimpleNamespace(python_stack=(frame,)), process=SimpleNamespace(snapshot=snapshot)
    )
    size = state_sizes.StateSize("exp_avg", "table.weight", 64, 4096)
    assert says in state_sizes.state_advice(view, size)


@pytest.mark.parametrize(
    ("operator", "name", "nbytes", "explained"),
    [
        ("aten::_fused_adamw_", "exp_avg of table.weight", 4096, True),
        ("aten::_fused_adamw_", "exp_avg of table.weight", 64, False),  # as large as its parameter
        ("aten::_fused_adamw_", "exp_avg of table.weight", 16, False),  # larger than its parameter
        ("aten::_fused_adamw_", "step of table.weight", 4096, False),  # one number, of a parameter of any size
        ("aten::linear", "exp_avg of table.weight", 4096, False),  # it writes to no state
    ],
)
def test_a_small_state_explains_a_damaged_heap_in_a_fused_optimizer(
    operator: str, name: str, nbytes: int, explained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only there, and only where the state is smaller."""
    state = SimpleNamespace(name=name, role="optimizer state", nbytes=64)
    parameter = SimpleNamespace(name="parameter table.weight", role="parameter", nbytes=nbytes, base=2)
    named = SimpleNamespace(of_storage=lambda storage, addr: ([state], []), with_name=lambda name: [parameter])
    running = SimpleNamespace(name=operator, tensors=[SimpleNamespace(item=SimpleNamespace(base=1, sizes=()))])
    monkeypatch.setattr(state_sizes, "find_operator", lambda view: running)
    monkeypatch.setattr(state_sizes, "shape_words", lambda item: "[16]")
    uses = SimpleNamespace(named=named)
    space = SimpleNamespace(uses=uses, live_around=lambda base: SimpleNamespace(base=base, nbytes=64, origin=None))
    process = SimpleNamespace(snapshot=SimpleNamespace(named={}))
    view: Any = SimpleNamespace(place=None, space=space, process=process)
    found = state_sizes.unfit_state(view)
    assert (found is not None) == explained
    if found is not None:
        assert found.summary.startswith("`exp_avg` of table.weight [16] is smaller than the parameter (")


@pytest.mark.parametrize(("value", "is_count"), [(0x5555_0000_1230, False), (0x5556_0000_0000, True), (-3, True)])
def test_handle_is_not_told_as_a_count(value: int, is_count: bool, tmp_path: Path) -> None:
    """An address of mapped memory; the look-alike is a number that is as large and leads nowhere."""
    found = module.passed(view_of(tmp_path, "library.decode(index)", {"index": value}))
    assert found is not None
    assert bool(found.numbers) == is_count
