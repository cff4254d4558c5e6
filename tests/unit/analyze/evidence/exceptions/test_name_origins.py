"""Where the values of a failing line came from: read from sources alone, and nothing where they do not say."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytracer.analyze.evidence.exceptions.name_origins import meant_words, origin_words
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport


class Failed:
    """A program that failed at the lines that end in `# here` (innermost) and `# caller`, `# caller 2`."""

    def __init__(self, folder: Path, source: str, message: str, *functions: str, **values: str) -> None:
        file = folder / "train.py"
        file.write_text(textwrap.dedent(source).lstrip("\n"), encoding="utf-8")
        lines = file.read_text(encoding="utf-8").splitlines()

        def frame(function: str, mark: str) -> PythonFrame:
            number = next(n for n, line in enumerate(lines, 1) if line.endswith(mark))
            return PythonFrame(function=function, file=str(file), line=number)

        marks = ("# here", "# caller", "# caller 2")
        self.stack = [frame(function, mark) for function, mark in zip(functions, marks, strict=False)]
        self.snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
        variables = [VariableReport(name=name.replace("self_", "self."), value=value) for name, value in values.items()]
        self.exception = ExceptionReport(type="Error", message=message, variables=variables)

    @property
    def origin(self) -> str | None:
        return origin_words(self.snapshot, self.exception, self.stack)

    @property
    def meant(self) -> str | None:
        return meant_words(self.snapshot, self.exception, self.stack)


def test_an_argument_is_followed_to_the_line_that_made_it(tmp_path: Path) -> None:
    """Through a caller that passes it on under another name."""
    source = """
        def report(metrics):
            return metrics[0]  # here

        def main(model):
            found = evaluate(model)
            report(found)  # caller
        """
    done = Failed(tmp_path, source, "list index out of range", "report", "main", metrics="list of 0")
    assert done.origin == "`metrics` comes from line 5 (`found = evaluate(model)`)"
    assert done.meant == "`metrics` was an empty list"


def test_an_expression_that_is_passed_is_quoted(tmp_path: Path) -> None:
    """The caller's line is the last that can be said."""
    source = """
        def report(metrics):
            return metrics[0]  # here

        def main(model):
            report(evaluate(model))  # caller
        """
    done = Failed(tmp_path, source, "list index out of range", "report", "main", metrics="list of 0")
    assert done.origin == "`metrics` comes from line 5 (`report(evaluate(model))  # caller`)"


def test_an_empty_container_names_the_line_that_fills_it(tmp_path: Path) -> None:
    """That it was made empty is no news."""
    source = """
        def mean(loader):
            losses = []
            for batch in loader:
                losses.append(step(batch))
            return sum(losses) / len(losses)  # here
        """
    done = Failed(tmp_path, source, "division by zero", "mean", losses="list of 0", loader="list of 0")
    assert done.origin == "`losses` comes from line 2 (`losses = []`), and is filled at line 4"


def test_only_the_operands_that_the_message_is_about_are_named(tmp_path: Path) -> None:
    """By the numbers of the message in their shapes."""
    source = """
        def forward(x, scale):
            position = table[: 512]
            other = scale * 2
            return x + position * other  # here
        """
    message = "The size of tensor a (600) must match the size of tensor b (512) at non-singleton dimension 1"
    shapes = {"x": "[2, 600] float32", "position": "[1, 512] float32", "other": "[1, 1] float32"}
    done = Failed(tmp_path, source, message, "forward", **shapes)
    assert done.meant == "`x` was [2, 600] float32 and `position` was [1, 512] float32"
    assert done.origin == "`position` comes from line 2 (`position = table[: 512]`)"


def test_a_check_of_the_program_is_about_its_condition(tmp_path: Path) -> None:
    """The variables of the `if` above a `raise`, not those of the message's text."""
    source = """
        def check(labels, classes, name):
            largest = labels.max()
            if largest >= classes:
                raise ValueError(f"label {largest} of {name}")  # here
        """
    done = Failed(tmp_path, source, "label 11 of train", "check", largest="[] int64 11", classes="10", name="str of 5")
    assert done.meant == "`largest` was 11 (int64)"
    assert done.origin == "`largest` comes from line 2 (`largest = labels.max()`)"


def test_an_attribute_that_was_never_set_names_who_sets_it(tmp_path: Path) -> None:
    """The line in __init__, and the one that would have given it a value."""
    source = """
        class Trainer:
            def __init__(self):
                self.loader = None

            def prepare(self):
                self.loader = make()

            def train(self):
                for batch in self.loader:  # here
                    pass
        """
    message = "'NoneType' object is not iterable"
    done = Failed(tmp_path, source, message, "Trainer.train", self_loader="None")
    assert done.origin == "`self.loader` comes from line 3 (`self.loader = None`), and is set at line 6"


def test_a_type_that_the_message_names_is_meant(tmp_path: Path) -> None:
    """A tuple where a tensor was expected."""
    source = """
        def step(model, batch):
            loss = model(batch)
            loss.backward()  # here
        """
    done = Failed(tmp_path, source, "'tuple' object has no attribute 'backward'", "step", loss="tuple of 2")
    assert done.origin == "`loss` comes from line 2 (`loss = model(batch)`)"


def test_several_innocent_variables_name_none(tmp_path: Path) -> None:
    """A guess among three would be wrong twice."""
    source = """
        def step(model, batch, target):
            a = model(batch)
            b = target * 2
            return loss(a, b)  # here
        """
    done = Failed(tmp_path, source, "something else", "step", a="[4] float32", b="[4] float32")
    assert done.origin is None
    assert done.meant is None


def test_small_numbers_of_a_message_mean_nothing(tmp_path: Path) -> None:
    """0 and 1 are in most shapes."""
    source = """
        def step(model, batch):
            a = model(batch)
            return a + batch  # here
        """
    done = Failed(tmp_path, source, "expected 1 of 0", "step", a="[1, 4] float32", batch="1")
    assert done.meant is None


def test_modules_functions_and_what_is_called_are_no_values(tmp_path: Path) -> None:
    """Only `rows` can have been wrong."""
    source = """
        import torch

        def scale(x):
            return x

        def load(rows):
            return torch.cat(scale(rows))  # here

        load([])  # caller
        """
    done = Failed(tmp_path, source, "expected a non-empty list of Tensors", "load", "<module>", rows="list of 0")
    assert done.origin == "`rows` comes from line 9 (`load([])  # caller`)"


def test_a_function_that_is_passed_comes_from_no_line(tmp_path: Path) -> None:
    source = """
        from torch.distributed import rpc

        def score(x):
            return x

        def run():
            rpc.rpc_sync("worker2", score)  # here

        run()  # caller
        """
    assert Failed(tmp_path, source, "could not find destination name worker2", "run", "<module>").origin is None


@pytest.mark.parametrize("known", [True, False])
def test_a_look_up_is_about_its_tables_and_not_about_the_call_around_it(known: bool, tmp_path: Path) -> None:
    """Of two tables, one of them a global that is not recorded, either may lack the key."""
    source = f"""
        def encode(row, parts, current):
            parts.append({"row" if known else "LABELS[row"}[current]{"" if known else "]"})  # here

        encode({{}}, [], 2)  # caller
        """
    values = {"row": "dict of 2", "parts": "list of 0", "current": "2"}
    done = Failed(tmp_path, source, "'goood'", "encode", "<module>", **values)
    done.exception = msgspec.structs.replace(done.exception, type="KeyError")
    assert done.meant == ("`row` was a dict of 2 and `current` was 2" if known else None)


def test_a_key_that_a_library_misses_is_not_of_the_line(tmp_path: Path) -> None:
    """`optimizer.load_state_dict(checkpoint["optimizer"])` raises below torch for another key."""
    done = Failed(tmp_path, "load(found['a'])  # here\n", "'param_groups'", "<module>", found="dict of 3")
    done.exception = msgspec.structs.replace(done.exception, type="KeyError")
    assert done.meant == "`found` was a dict of 3"
    done.stack.insert(0, PythonFrame(function="load_state_dict", file="/site-packages/torch/optim.py", line=9))
    assert done.meant is None


def test_a_source_that_changed_later_says_nothing(tmp_path: Path) -> None:
    """Its lines may be others than those that ran."""
    done = Failed(tmp_path, "x = []\nx[3]  # here\n", "list index out of range", "<module>", x="list of 0")
    done.snapshot.created_wall_ns = 1
    assert done.origin is None


@pytest.mark.parametrize("source", ["x = [\nx[3]  # here\n", "\0# here\n"])
def test_a_file_that_is_no_python_says_nothing(tmp_path: Path, source: str) -> None:
    """Such as a template, or a program of a newer Python."""
    assert Failed(tmp_path, source, "list index out of range", "<module>", x="list of 0").origin is None


def test_line_behind_the_failing_one_made_no_value_of_it(tmp_path: Path) -> None:
    """A parameter comes from the caller's line; within a loop a line below may have made it in the round before."""
    source = """
        def forward(x):
            y = quantized(x)  # here
            x = relu(y)
            return x
        images = load()
        forward(images)  # caller
        """
    failed = Failed(tmp_path, source, "refused", "forward", "<module>", x="[16, 3] float32")
    assert "relu" not in (failed.origin or "")
    looped = """
        def forward(x):
            for layer in layers:
                y = quantized(x)  # here
                x = relu(y)
            return x
        forward(images)  # caller
        """
    failed = Failed(tmp_path, looped, "refused", "forward", "<module>", x="[16, 3] float32")
    assert "(`x = relu(y)`), and in the first round it is the caller's" in (failed.origin or "")


def test_default_of_a_parameter_does_not_come_from_the_call(tmp_path: Path) -> None:
    """`train()` passes nothing; the look-alike passes an expression."""
    source = """
        def train(width=128):
            return load(width)  # here
        train({0})  # caller
        """
    given = [
        Failed(tmp_path, source.format(text), "refused", "train", "<module>", width="128").origin
        for text in ("", "64 * 2")
    ]
    assert given[0] is None and "train(64 * 2)" in (given[1] or "")
