"""Arrays of NumPy are found among the numbers of a recording; what only looks so stays a number."""

from __future__ import annotations

from pytracer.decode.recording.held_arrays import split_arrays
from pytracer.decode.types.snapshot import HeldArray, HeldNumber, PythonFrame

AT = PythonFrame("blur", "/job/blur.py", 34)


def numbers(*items: tuple[str, int], depth: int = 0) -> list[HeldNumber]:
    return [HeldNumber(name, value, AT, depth) for name, value in items]


IMAGE = (
    ("img.ctypes.data", 0x7F00_0000_2EE0), ("img.dtype.num", 11), ("img.shape[0]", 2), ("img.strides[0]", -12000),
    ("img.shape[1]", 3000), ("img.strides[1]", 4),
)  # fmt: skip


def test_an_array_is_put_together_and_its_memory_is_known() -> None:
    """Flipped: the first element is not the lowest."""
    kept, (array,) = split_arrays(numbers(("rows", 2), *IMAGE, ("cols", 3000)))
    assert [item.expression for item in kept] == ["rows", "cols"]
    assert array == HeldArray("img", 0x7F00_0000_2EE0, "float32", (2, 3000), (-12000, 4), AT, 0)
    assert array.extent == (0x7F00_0000_0000, 0x7F00_0000_0000 + 24000)
    assert array.in_a_row is False


def test_numbers_that_belong_to_no_array_stay_numbers() -> None:
    """A program's own `self.shape[0]`, another variable's, one of another frame, and one out of order."""
    kept, arrays = split_arrays(
        [
            *numbers(("self.shape[0]", 5)),
            *numbers(("x.ctypes.data", 64), ("y.shape[0]", 3), ("x.shape[1]", 3)),
            *numbers(("x.shape[0]", 7), depth=1),
        ]
    )
    assert [item.expression for item in kept] == ["self.shape[0]", "y.shape[0]", "x.shape[1]", "x.shape[0]"]
    assert arrays == (HeldArray("x", 64, None, (), (), AT, 0),)
    assert arrays[0].extent is None and arrays[0].in_a_row is None


def test_gaps_are_told_by_the_strides() -> None:
    def of(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool | None:
        return HeldArray("x", 64, "int16", shape, strides, AT, 0).in_a_row

    assert of((4, 8), (16, 2)) and of((1, 8), (99, 2)) and of((), ()) and of((5,), (2,))
    assert not of((4, 8), (2, 8)) and not of((4, 8), (32, 4)) and not of((5,), (-2,)) and not of((4, 8), (0, 2))
    assert HeldArray("x", 64, "int16", (0, 8), (16, 2), AT, 0).extent is None


def test_elements_are_those_of_the_array_of_that_name() -> None:
    """They come behind all arrays; of uint64 the sign is no sign."""
    kept, (image, ids) = split_arrays(
        [
            *numbers(*IMAGE, ("ids.ctypes.data", 64), ("ids.dtype.num", 8), ("ids.shape[0]", 3), ("ids.strides[0]", 8)),
            *numbers(("ids.min()", 0), ("ids.max()", -1), ("img.isnan().sum()", 7), ("img.isinf().any()", 1)),
            *numbers(("ids.min()", 4), depth=1),
        ]
    )
    assert _extremes(("ids.min()", -5), ("ids.max()", 3)) == (None, None)  # which of both is larger was not asked
    assert (ids.minimum, ids.maximum, ids.nan_count) == (0, (1 << 64) - 1, None)
    assert (image.minimum, image.nan_count, image.has_infinity) == (None, 7, 1)
    assert [(item.expression, item.depth) for item in kept] == [("ids.min()", 1)]


def _extremes(*found: tuple[str, int]) -> tuple[int | None, int | None]:
    named = numbers(("ids.ctypes.data", 64), ("ids.dtype.num", 8), ("ids.shape[0]", 3), ("ids.strides[0]", 8), *found)
    _, (ids,) = split_arrays([*named])
    return ids.minimum, ids.maximum
