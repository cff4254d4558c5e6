"""Variables of the frame that an exception left: shapes, lengths and numbers, and no contents."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from pytracer.record.torch.frame_variables import failing_columns, outer_variables, variables_of
from pytracer.record.torch.near_names import near_names


class Odd:
    """Its attributes run code of the program's own."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")

    def __len__(self) -> int:
        raise AssertionError("its length was asked for")


class Loader:
    """A class with state."""

    def __init__(self) -> None:
        self.count = 3
        self.secret = "hidden"

    def step(self, rows: list[int], name: str, odd: Odd) -> None:
        """Raises."""
        nothing = None
        ratio = 0.5
        big = 1 << 70
        raise ValueError(self.count, rows, name, odd, nothing, ratio, big)


class Missing(Odd):
    """As Odd, as `self`."""

    def step(self) -> None:
        """Raises."""
        raise ValueError(self)


def trace_of(function: Callable[..., object], *arguments: object) -> TracebackType | None:
    """The traceback of what it raises."""
    try:
        function(*arguments)
    except (ValueError, RuntimeError) as error:
        return error.__traceback__
    return None


def test_types_lengths_and_numbers_are_kept() -> None:
    """A str has a length only, and other objects nothing."""
    found = variables_of(trace_of(Loader().step, [1, 2], "password", Odd()))
    assert {item["name"]: item["value"] for item in found} == {
        "rows": "list of 2", "name": "str of 8", "nothing": "None", "ratio": "0.5", "self.count": "3"
    }  # fmt: skip


def test_number_that_is_not_finite_is_kept() -> None:
    """It is what an exception about NaN is about."""

    def step(score: float, limit: float) -> None:
        raise ValueError(score, limit)

    found = {item["name"]: item["value"] for item in variables_of(trace_of(step, float("nan"), float("-inf")))}
    assert found == {"score": "nan", "limit": "-inf"}


def test_numbers_are_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off with --no-values."""
    monkeypatch.setenv("PYTRACER_NO_VALUES", "1")
    names = [item["name"] for item in variables_of(trace_of(Loader().step, [1], "x", Odd()))]
    assert names == ["rows", "name", "nothing"]


def test_no_code_of_the_program_is_run() -> None:
    """Not even __getattr__ of `self`."""
    assert variables_of(trace_of(Missing().step)) == []


def test_shapes_of_tensors_and_layers() -> None:
    """Also of parameters that the method's code names."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 2)
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: object) -> None:
            raise ValueError(self.fc, self.scale, x)

    found = variables_of(trace_of(Net().forward, torch.zeros(5, 4, dtype=torch.float64)))
    assert {item["name"]: item["value"] for item in found} == {
        "x": "[5, 4] float64", "self.fc.weight": "[2, 4] float32", "self.scale": "[3] float32",
        "parameters of self": "3, finite",
    }  # fmt: skip


def test_frame_of_a_library_is_not_the_program_s() -> None:
    """The program's innermost one counts."""
    made: dict[str, Any] = {}
    code = "def fails(n):\n    inner = 1\n    raise ValueError(n)\n"
    exec(compile(code, "/x/site-packages/library.py", "exec"), made)  # noqa: S102

    def caller(n: int) -> None:
        outer = [n]
        made["fails"](outer)

    assert [item["name"] for item in variables_of(trace_of(caller, 7))] == ["n", "outer", "made"]


def test_nothing_without_a_traceback() -> None:
    """As of an exception that was never raised."""
    assert variables_of(None) == [] and sys.exc_info() == (None, None, None)


def test_a_layer_of_torch_is_named_with_what_it_was_given() -> None:
    """By its way from a variable of the program's line."""
    torch = pytest.importorskip("torch")

    def run() -> None:
        net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(6, 2))
        try:
            net(torch.ones(3, 5))
        except RuntimeError as error:
            raise ValueError from error

    with pytest.raises(ValueError) as caught:
        run()
    cause = caught.value.__cause__
    assert cause is not None
    found = {item["name"]: item["value"] for item in variables_of(cause.__traceback__)}
    assert found["net.1"] == "Linear(in_features=6, out_features=2, bias=True) float32"
    assert found["input of net.1"] == "[3, 5] float32"


def test_programs_modes_do_not_see_it() -> None:
    """Code of the program's is not called for a report about it."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Refuses(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(func)

    labels = torch.tensor([3, 5])
    with Refuses():
        try:
            raise ValueError("labels") if labels is not None else KeyError
        except ValueError as error:
            found = variables_of(error.__traceback__)
    assert {"name": "labels", "value": "[2] int64, 3..5"} in found


def test_small_tensors_have_their_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask how many it selects; none with --no-values."""
    torch = pytest.importorskip("torch")

    def run() -> None:
        labels, mask = torch.tensor([3, 5]), torch.tensor([True, False])
        bad, meta = torch.tensor([1.0, float("nan")]), torch.empty(2, device="meta", dtype=torch.long)
        raise ValueError(labels, mask, bad, meta)

    values = {item["name"]: item["value"] for item in variables_of(trace_of(run))}
    assert values["labels"] == "[2] int64, 3..5" and values["mask"] == "[2] bool, 1 true"
    assert values["bad"] == "[2] float32, with nan" and values["meta"] == "[2] int64 on meta"
    monkeypatch.setenv("PYTRACER_NO_VALUES", "1")
    assert "[2] int64" in [item["value"] for item in variables_of(trace_of(run))]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="CPython 3.10 has no columns")
def test_columns_of_the_expression_that_failed() -> None:
    """Of the program's innermost frame."""

    def run(rows: list[int]) -> int:
        return rows[0] + rows[7]

    with pytest.raises(IndexError) as caught:
        run([1])
    line, start, last, end = failing_columns(caught.value.__traceback__)
    assert line == last and end - start == len("rows[7]")


def near(function: Callable[..., object], *arguments: object) -> list[dict[str, object]]:
    """What is recorded in place of what is missing."""
    with pytest.raises((KeyError, AttributeError, TypeError)) as caught:
        function(*arguments)
    return near_names(caught.value, caught.value.__traceback__)


def test_keys_of_small_dicts_are_names() -> None:
    """Not those of a table of data, nor values."""
    secret = {"anna@example.com": 1}
    large = {f"w{number}": number for number in range(100)}
    assert near(lambda row: row["label"], {"labels": "hidden", "image": "a"}) == [
        {"of": "row", "names": ["'labels'", "'image'"], "count": 2}
    ]
    assert near(lambda row: row["x"], secret) == [] and near(lambda row: row["x"], large) == []


def test_parameters_and_attributes_like_the_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No code of an object with attributes of its own making is run, and nothing with --no-values."""
    loader = Loader()
    assert near(lambda: loader.cuont) == [{"of": "Loader", "names": ["count"]}]  # type: ignore[attr-defined]
    assert near(lambda: near_names(eror=1)) == [{"of": "near_names()", "names": ["error", "trace"]}]  # type: ignore[call-arg]
    with pytest.raises(AssertionError):
        Odd().missing  # noqa: B018
    monkeypatch.setenv("PYTRACER_NO_VALUES", "1")
    assert near(lambda: loader.cuont) == []  # type: ignore[attr-defined]


def test_variables_of_callers_are_kept_with_their_place() -> None:
    """Those of the program's frames; the innermost frame's are told apart."""

    def inner(rows: list[int]) -> None:
        raise ValueError(rows)

    def outer(count: int) -> None:
        inner([count])

    found = {item["frame"]: item["variables"] for item in outer_variables(trace_of(outer, 7))}
    assert {"name": "count", "value": "7"} in found[1]  # type: ignore[operator]
    assert 0 not in found


def test_items_are_kept_that_the_code_names() -> None:
    """Other keys may be data, and a text has a length only."""
    torch = pytest.importorskip("torch")

    class Options:
        def __init__(self) -> None:
            self.rate, self.token, self.other = 0.5, "secret", 3

    def step(batch: dict[str, object], options: Options, parts: list[object]) -> None:
        raise ValueError(batch["x"], options.rate, options.token, parts)

    batch = {"x": torch.ones(2), "patient": 7}
    found = variables_of(trace_of(step, batch, Options(), [torch.ones(3), torch.ones(4)]))
    assert {item["name"]: item["value"] for item in found} == {
        "batch": "dict of 2", "parts": "list of 2", "batch['x']": "[2] float32", "options.rate": "0.5",
        "options.token": "str of 6", "parts[0]": "[3] float32", "items of parts": "[3]; [4] at 1"
    }  # fmt: skip


def test_an_iterator_is_named_and_not_read() -> None:
    """It could be read only once."""
    rows = iter(())

    def step(numbers: object) -> None:
        raise ValueError(numbers)

    numbers = filter(None, [1, 2])
    assert {item["name"]: item["value"] for item in variables_of(trace_of(step, numbers))} == {"numbers": "filter"}
    assert list(numbers) == [1, 2] and list(rows) == []


def test_groups_that_an_optimizer_compared_are_kept() -> None:
    """By their lengths, in torch's own frame."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    saved = torch.optim.SGD(net.parameters(), lr=0.1).state_dict()
    own = torch.optim.SGD(net[0].parameters(), lr=0.1)
    found = next(
        item["variables"] for item in outer_variables(trace_of(own.load_state_dict, saved)) if item["frame"] == 0
    )
    assert found == [
        {"name": "groups[0]['params']", "value": "list of 2"},
        {"name": "saved_groups[0]['params']", "value": "list of 4"},
    ]


def test_samples_that_differ_are_kept_with_their_place() -> None:
    """Of the parts that collate() could not join."""
    from torch.utils.data import default_collate

    trace = trace_of(default_collate, [(1, {"boxes": [1, 2]}), (2, {"boxes": [1]})])
    found = next(item["variables"] for item in outer_variables(trace) if item["frame"] == 0)
    assert found == [
        {"name": "batch[0]", "value": "list of 2"},
        {"name": "batch[1]", "value": "list of 1"},
        {"name": "place", "value": "[1]['boxes']"},
    ]


def test_repr_of_the_keys_of_a_program_is_never_called() -> None:
    """A key of a class of its own gives no place; the parts themselves are kept."""
    from torch.utils.data import default_collate

    class Key:
        def __repr__(self) -> str:
            raise AssertionError("called by the recorder")

    key = Key()
    trace = trace_of(default_collate, [{key: [1, 2]}, {key: [1]}])
    found = next(item["variables"] for item in outer_variables(trace) if item["frame"] == 0)
    assert found == [{"name": "batch[0]", "value": "list of 2"}, {"name": "batch[1]", "value": "list of 1"}]


def test_parameters_and_gradients_that_are_not_finite_are_counted() -> None:
    """Of each module of the frame; nothing of one that could not be read whole and has none."""
    torch = pytest.importorskip("torch")
    bad, good, large = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), torch.nn.Linear(200, 200)
    bad.weight.data.fill_(float("nan"))
    good(torch.ones(1, 2)).sum().backward()
    assert good.weight.grad is not None
    good.weight.grad[0] = float("inf")

    def step(bad: object, good: object, large: object) -> None:
        raise ValueError(bad, good, large)

    found = {item["name"]: item["value"] for item in variables_of(trace_of(step, bad, good, large))}
    assert found == {
        "parameters of bad": "1 of 2 with nan",
        "parameters of good": "2, finite",
        "gradients of good": "1 of 2 with inf",
    }


def test_what_a_distribution_was_made_of_is_known() -> None:
    """Its parameters, of a variable and of an attribute; an array of NumPy with NaN is told, too."""
    torch = pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")

    class Policy:
        def __init__(self) -> None:
            self.dist = torch.distributions.Normal(torch.tensor([float("nan")]), torch.ones(1), validate_args=False)

        def act(self, table: object) -> None:
            raise ValueError(self.dist, table)

    found = {
        item["name"]: item["value"] for item in variables_of(trace_of(Policy().act, numpy.array([0.0, numpy.nan])))
    }
    assert found["self.dist.loc"] == "[1] float32, with nan" and found["self.dist.scale"] == "[1] float32"
    assert found["table"] == "[2] float64 array, with nan"
