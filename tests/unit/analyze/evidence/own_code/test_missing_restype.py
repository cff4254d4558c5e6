"""Functions of C whose result is taken for a C int, as no line of the program sets their restype."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.missing_restype import missing_restype
from pytracer.decode.types.snapshot import PythonFrame

SOURCE = """import ctypes
class Codec:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.decode.argtypes = [ctypes.c_void_p]
        {more}
    def read(self, data):
        size = len(data)
        ptr = self.lib.decode(data.ctypes.data)
        view = ctypes.cast(ptr, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(view, shape=(size,))
"""


def found(folder: Path, source: str) -> Any:
    file = folder / "codec.py"
    file.write_text(source, encoding="utf-8")
    crash = SimpleNamespace(python_stack=(PythonFrame("Codec.read", str(file), 11),), images=())
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    view: Any = SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot))
    return missing_restype(view, str(file), 11)


def test_the_call_whose_result_became_an_address(tmp_path: Path) -> None:
    returned = found(tmp_path, SOURCE.replace("{more}", "pass"))
    assert (returned.function, returned.at) == ("self.lib.decode", "line 9")


@pytest.mark.parametrize(
    "more",
    [
        "self.lib.decode.restype = ctypes.c_void_p",
        "for name in NAMES: getattr(self.lib, name).restype = ctypes.c_void_p",
        "setattr(self.lib.decode, 'restype', ctypes.c_void_p)",
    ],
)
def test_nothing_where_a_line_may_set_it(more: str, tmp_path: Path) -> None:
    assert found(tmp_path, SOURCE.replace("{more}", more)) is None


def test_of_two_such_calls_none_is_named(tmp_path: Path) -> None:
    twice = SOURCE.replace("{more}", "pass").replace("size = len(data)", "size = self.lib.decode(data.ctypes.data)")
    assert found(tmp_path, twice) is None
