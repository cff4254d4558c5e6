"""Names that there are in place of a missing one: asked of the objects without running code of the program."""

from __future__ import annotations

from pytracer.record.torch.near_names import near_names
from pytracer.record.torch.object_words import iterator_words

_asked: list[str] = []


class _Proxy:
    """As lazy objects and mocks are: it tells another class."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        _asked.append("__class__")
        return dict

    def __iter__(self) -> _Proxy:
        return self

    def __next__(self) -> int:
        raise StopIteration


class _Missing(AttributeError):
    @property
    def obj(self) -> object:  # type: ignore[override]
        _asked.append("obj")
        return self


def _names(run: object) -> list[dict[str, object]]:
    try:
        run()  # type: ignore[operator]
    except (KeyError, AttributeError) as error:
        trace = error.__traceback__
        assert trace is not None
        _asked.clear()
        return near_names(error, trace.tb_next)
    raise AssertionError("it did not fail")


def test_class_that_an_object_claims_is_not_asked() -> None:
    """A property may do anything."""

    def run() -> None:
        held, table = _Proxy(), {"x": 1}
        table["y"]
        del held

    assert _names(run) == [{"of": "table", "names": ["'x'"], "count": 1}]
    assert not _asked


def test_property_of_an_attribute_error_of_the_program_is_not_asked() -> None:
    """`obj` is Python's own."""

    def run() -> None:
        raise _Missing("'int' object has no attribute 'bat'")

    assert _names(run) == []
    assert not _asked


def test_iterator_over_such_an_object_is_named() -> None:
    """Whether it is used up, is seen from what zip() holds."""
    given = zip(_Proxy(), [1], strict=False)
    _asked.clear()
    assert iterator_words(given) == "zip"
    assert not _asked
