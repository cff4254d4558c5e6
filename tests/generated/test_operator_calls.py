"""A few of the stored calls of torch's operators that kill the process, each with one argument changed by a search.

`make test-generated` runs all of them; docs/measurements/operator-calls.md has what came out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.conditions import needs_capstone, needs_native
from tests.generated.operator_calls import OperatorCall, OperatorProgram, load, named, program_of
from tests.generated.operator_judge import CallJudged, judge_call
from tests.generated.runner import Runner
from tests.support.debug_information import debug_information_is_parsed_once

__all__ = ["debug_information_is_parsed_once"]

# Of operators whose schema has been the same for years, one of each kind of error.
_CHOSEN = (
    ("aten.max_pool2d_with_indices_backward.default", "indices", "index-huge"),
    ("aten._fused_adam_.default", "exp_avgs", "empty"),
    ("aten.native_batch_norm.default", "running_mean", "empty"),
    ("aten._to_dense.default", "self", "sparse-index-huge"),
    ("aten.adaptive_max_pool2d_backward.default", "indices", "index-far-negative"),
    ("aten._adaptive_avg_pool2d_backward.default", "self", "empty"),
)


def _chosen() -> list[OperatorCall]:
    return [call for call in load() if (call.operator, call.changed, call.kind) in _CHOSEN]


@pytest.fixture(scope="module")
def judged(
    tmp_path_factory: pytest.TempPathFactory, debug_information_is_parsed_once: None
) -> Iterator[list[CallJudged]]:
    programs = [program_of(call) for call in _chosen()]
    with Runner(tmp_path_factory.mktemp("calls"), None) as runner:
        yield [judge_call(item, runner.run(item.program)) for item in programs]


def test_call_is_always_the_same_program() -> None:
    """And each has a name of its own."""
    programs = [program_of(call) for call in load()]
    assert programs == [program_of(call) for call in load()]
    assert len({item.program.seed for item in programs}) == len(programs) >= 150


def test_program_is_python_and_says_where_it_is_wrong() -> None:
    """The line of the truth changes the culprit, and the line that dies calls the operator."""
    for item in map(program_of, load()):
        lines = item.program.source.splitlines()
        ast.parse(item.program.source)
        assert named(lines[item.culprit.line - 1], item.culprit.name), item
        assert item.program.truth.line is not None
        assert f"torch.ops.{item.call.operator}(" in lines[item.program.truth.line - 1], item
        assert item.culprit.name not in item.culprit.others


def test_part_of_a_sparse_tensor_names_it() -> None:
    """And a longer name does not."""
    assert named("the values of `edges_cols` are", "edges")
    assert not named("the values of `edges_new` are", "edges")


def test_chosen_calls_are_stored() -> None:
    """A new search must keep them."""
    assert len(_chosen()) == len(_CHOSEN)


@pytest.mark.slow
@needs_native
@needs_capstone
def test_nothing_certain_is_wrong_about_the_chosen_calls(judged: list[CallJudged]) -> None:
    """Class, line and argument."""
    assert [item for item in judged if item.worst] == []


@pytest.mark.slow
@needs_native
@needs_capstone
def test_chosen_calls_are_explained(judged: list[CallJudged]) -> None:
    """All but one: other processors and versions leave other traces."""
    died: list[OperatorProgram] = [item.item for item in judged if item.class_is != "nothing"]
    assert len(died) >= len(_CHOSEN) - 1
    assert sum(item.good for item in judged) >= len(died) - 1, [item for item in judged if not item.good]
