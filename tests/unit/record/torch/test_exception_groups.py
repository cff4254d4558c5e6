"""Exception groups: what is recorded is the first exception inside, with the frames of the group around it."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from pytracer.record.torch.exceptions import _first_of_group

GROUP: Any = getattr(builtins, "ExceptionGroup", None)
pytestmark = pytest.mark.skipif(GROUP is None, reason="Python has groups since 3.11")


def _fails() -> None:
    raise KeyError("labels")


def _raises_group() -> None:
    try:
        _fails()
    except KeyError as error:
        raise GROUP("two", [GROUP("one", [error]), ValueError()]) from None


def test_first_exception_of_a_group_is_recorded() -> None:
    """Of nested groups the innermost; the frames of the groups follow those of its own."""
    with pytest.raises(Exception, match="two") as caught:
        _raises_group()
    error, trace, around = _first_of_group(caught.value, caught.value.__traceback__)
    assert isinstance(error, KeyError)
    assert trace is error.__traceback__
    assert around[0]["function"] == "_raises_group"


def test_other_exceptions_stay() -> None:
    """They have no group around them."""
    error = ValueError()
    assert _first_of_group(error, None) == (error, None, [])
