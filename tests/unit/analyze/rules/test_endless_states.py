"""pickle walking through states that are made anew for each object: no stack is large enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deaths import advice, summary
from tests.unit.analyze.rules.test_linked_objects import overflow

STAGE = """class Stage:
    def after(self):
        return Stage(self.level + 1)
    def __getstate__(self):
        state = dict(self.__dict__)
        state["after"] = self.after()
        return state
def save(stage):
    pass
    pass
    pass
    pass
    pickle.dump(stage, f)
"""


def test_state_with_a_new_object_of_its_class_is_endless(run: Path) -> None:
    report = overflow(run, STAGE)
    assert "(line 6 (`self.after()`) makes a new Stage for the state of each Stage)" in summary(report)
    assert advice(report).startswith("Leave it out of what Stage.__getstate__() returns: line 6")
    assert "A larger stack holds more" not in advice(report)


@pytest.mark.parametrize(
    "program",
    [
        STAGE.replace('state["after"] = self.after()', "if self.level: state['after'] = self.after()"),
        STAGE.replace("return Stage(self.level + 1)", "return self.level + 1"),
        STAGE.replace('state["after"] = self.after()', "plain = self.after(); state.pop(plain.level)"),  # in no state
        STAGE.replace("__getstate__", "__deepcopy__"),  # a new object is what it is asked for
    ],
)
def test_state_that_may_end_is_not_called_endless(program: str, run: Path) -> None:
    assert "for the state of each" not in summary(overflow(run, program))
