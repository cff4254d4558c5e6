"""A __getattr__ that answers pickle or copy with a KeyError; and what only looks like it."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.exceptions.unanswered_lookups import UnansweredLookup, unanswered_lookup
from pytracer.report.job import ExceptionReport, HandledExceptionReport, PythonFrame


def of_program(folder: Path, source: str) -> UnansweredLookup | None:
    """Of what the program raises, and of the exceptions that were being handled."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    try:
        exec(compile(source, str(file), "exec"), {"__name__": "train"})  # noqa: S102
    except Exception as error:
        trace, context, held = error.__traceback__, [], error.__context__
        while held is not None:
            context.append(HandledExceptionReport(type=type(held).__name__, message=str(held), python_stack=[]))
            held = held.__context__
        frames = traceback.extract_tb(trace)[:0:-1]
        stack = [PythonFrame(function=item.name, file=item.filename, line=item.lineno) for item in frames]
        snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9)
        report = ExceptionReport(type=type(error).__name__, message=str(error), context=context)
        return unanswered_lookup(snapshot, report, stack)
    raise AssertionError("the program did not fail")


DICT = """
import copy
class Config(dict):
    def __getattr__(self, key):
        return self[key]
class Trainer:
    def __init__(self, config):
        self.config = config
other = copy.deepcopy(Trainer(Config(lr=1.0)))
"""
COPIED = """
import copy
class Record:
    def __init__(self, **meta):
        self.meta = meta
    def __getattr__(self, name):
        return self.__dict__["meta"][name]
    def __deepcopy__(self, memo):
        return copy._reconstruct(self, memo, *self.__reduce_ex__(4))
copy.deepcopy(Record(label=1))
"""
SENT = """
import copy
class Signal:
    def __init__(self, **fields):
        self._fields = fields
    def __getattribute__(self, key):
        try:
            return super().__getattribute__(key)
        except AttributeError:
            return self[key]
    def __getitem__(self, key):
        if key == "_fields":
            raise KeyError("unknown field, check the names")
        return self._fields[key]
    def __deepcopy__(self, memo):
        return copy._reconstruct(self, memo, *object.__reduce_ex__(self, 4))
copy.deepcopy(Signal(snr=1.0))
"""


@pytest.mark.parametrize(
    ("source", "subject", "advice"),
    [
        (
            DICT,
            "copy asks a Config for `__deepcopy__`; Config.__getattr__() answers with KeyError",
            'begin Config.__getattr__() with `if key.startswith("__"): raise AttributeError(key)`, or raise',
        ),
        (
            COPIED,
            "copy makes a Record without __init__ and asks it for a method such as `__setstate__`, where `meta` is not",
            '`if name.startswith("__") or name == "meta": raise AttributeError(name)`',
        ),
        (
            SENT,
            "copy makes a Signal without __init__ and asks it for `__setstate__`, where `_fields` is not set yet",
            "there is none: raise AttributeError in place of KeyError at line 13.",
        ),
    ],
    ids=["asked of a dict", "asked of a new object", "by way of another method"],
)
def test_lookup_that_pickle_or_copy_asks_is_told(source: str, subject: str, advice: str, tmp_path: Path) -> None:
    """A __getattribute__ is told to raise no AttributeError by the name alone: it is asked for all of them."""
    found = of_program(tmp_path, source)
    assert found is not None
    assert subject in found.subject
    assert advice in found.advice


ASKED = """
class Config(dict):
    def __getattr__(self, key):
        return self[key]
print(Config(lr=1.0).rate)
"""
OWN_STATE = """
import copy
class Config:
    def __init__(self):
        self.kept = {"a": 1}
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.kept[name]
    def __setstate__(self, state):
        self.kept = {"b": state["b"]}
copy.copy(Config())
"""
PASSED = """
import pickle
class Record:
    def __init__(self, row):
        self.row = row
    def __getattr__(self, name):
        return self.row[name]
pickle.{}(Record({{"id": 1}}).payload)
"""
ATTRIBUTE = """
import copy
class Config:
    def __getattr__(self, name):
        raise AttributeError(name + " is not known")
    def __deepcopy__(self, memo):
        return self.names
copy.deepcopy(Config())
"""


@pytest.mark.parametrize(
    "source",
    [ASKED, OWN_STATE, ATTRIBUTE, PASSED.format("dumps"), PASSED.format("loads")],
    ids=["by the program", "own state", "right answer", "what is to be pickled", "what is to be loaded"],
)
def test_lookup_that_the_program_asks_is_left_alone(source: str, tmp_path: Path) -> None:
    """A misspelt key, a state without it, and an AttributeError are other mistakes."""
    assert of_program(tmp_path, source) is None
