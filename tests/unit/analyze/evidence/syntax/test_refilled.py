"""Loops over a list of work that they fill themselves; the look-alikes limit that, or nothing is known."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.endless import reason_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.syntax.unbounded import Reason, loops_at

RETRIES = """\
def pick(self, todo, tries):
    while {head}:
        frame = {takes}
        {more}
        if {test}:
            {puts}
            continue
        self.views.append(frame)
"""
FAILS = """\
def download(names):
    left = deque(names)
    while left:
        name = left.popleft()
        try:
            fetch(name)
        except OSError:
            left.append(name)
"""


def reason(source: str, line: int = 4) -> Reason | None:
    tree = ast.parse(source)
    scope = scope_of(tree, line)
    return reason_of(scope, loops_at(scope, line)[0], line)


def retries(
    head: str = "len(todo) > 0",
    takes: str = "todo.pop()",
    test: str = "self.depth[frame].sum() == 0",
    puts: str = "todo.append(frame)",
    more: str = "pass",
) -> Reason | None:
    return reason(RETRIES.format(head=head, takes=takes, test=test, puts=puts, more=more))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"head": "todo"},
        {"takes": "todo.popleft()", "puts": "todo.appendleft(frame)"},
        {"takes": "heapq.heappop(todo)", "puts": "heapq.heappush(todo, frame)"},
        {"puts": "todo.insert(0, frame)"},
        {"puts": "todo.extend([frame])"},
        {"more": "frame = self.next_valid(frame)"},
    ],
)
def test_item_that_is_put_back_below_a_condition_is_named_with_it(changed: dict[str, str]) -> None:
    found = retries(**changed)
    assert found is not None and not found.sure
    assert found.words == (
        "line 6 puts `frame` back into `todo`, from which line 3 takes, where `self.depth[frame].sum() == 0` (line 5): "
        "as long as that holds for all that it tries, `todo` never becomes empty"
    )
    assert found.advice.startswith("Bound the tries of the loop of line 2: count how often `frame` is put back")


def test_item_that_is_put_back_after_an_error_is_named_with_the_try() -> None:
    found = reason(FAILS)
    assert found is not None and "where the `try` of line 5 fails: as long as it fails for all" in found.words
    assert "See the error that the `try` of line 5 catches" in found.advice


@pytest.mark.parametrize(
    "changed",
    [
        {"test": "tries < 5", "more": "tries += 1"},
        {"test": "tries[frame] < 5 and self.bad(frame)", "more": "tries[frame] += 1"},
        {"test": "frame not in self.seen"},
        {"puts": "raise ValueError(todo.append(frame))"},
    ],
)
def test_tries_that_are_limited_are_not_said_to_go_on(changed: dict[str, str]) -> None:
    """The look-alikes: a count of them, a set of what was seen, an error."""
    assert retries(**changed) is None


def test_other_work_that_is_put_in_is_not_said_to_be_put_back() -> None:
    """The look-alike: what the loop finds, of which only a circle never ends."""
    found = retries(puts="todo.append(self.parent[frame])")
    assert found is not None and "puts `frame` back" not in found.words and "one circle in the data" in found.words


WORKS = """\
def read(self, todo, frames):
    while {0}:
        clip = todo.popleft()
        {1}
        if {2}:
            todo.append(clip)
"""


@pytest.mark.parametrize(
    ("head", "more", "test", "told"),
    [
        ("todo", "pass", "not clip.done()", True),
        ("todo", "self.check(clip)", "clip not in self.seen and self.bad[clip]", False),
        ("todo", "frames.append(clip.decode())", "not clip.finished()", False),
        ("todo", "self.step(clip)", "clip.left > 0", False),
        ("todo", "clip = clip[8:]", "len(clip) > 8", False),
        ("todo", "clip = clip.parent", "self.goes_on(clip)", False),
        ("todo and budget > 0", "budget -= 1", "self.bad(clip)", False),
    ],
)
def test_item_that_comes_nearer_to_its_end_is_not_said_to_go_on(head: str, more: str, test: str, told: bool) -> None:
    """The look-alikes: several clips read in turns, what is left of one, a limit in the head of the loop."""
    found = reason(WORKS.format(head, more, test), 3)
    assert (found is not None and "puts `clip` back" in found.words) == told


def test_item_that_is_put_back_where_no_error_came_is_not_said_to_fail() -> None:
    """Iterators in turns: `else` of the `try`."""
    source = FAILS.replace("            pass\n", "").replace("        except OSError:\n            left.append(name)",
        "        except StopIteration:\n            pass\n        else:\n            left.append(name)")  # fmt: skip
    found = reason(source)
    assert found is None or "fails" not in found.words
