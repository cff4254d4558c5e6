"""Loops that end by what they change themselves, and those that ask until somebody else has done something."""

from __future__ import annotations

import ast
import textwrap

import pytest

from pytracer.analyze.evidence.syntax.own_ends import ends_alone


def alone(body: str) -> bool:
    """Of the line of a function that has `HERE` in it."""
    source = f"def f(rows, flags, counter, world, path, start: int):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "HERE" in text)
    return ends_alone(ast.parse(source), line)


ENDS = {
    "counts": "at = 0\nwhile at < len(rows):\n    work(rows)  # HERE\n    at += 1\n",
    "in the head": "at = 0\nwhile at < len(rows):  # HERE\n    at += 1\n",
    "counts in both branches": """
        at = 0
        while at < len(rows):
            if rows[at]:  # HERE
                at += 2
            else:
                at += 1
    """,
    "counts in a branch that begins anew": """
        at = 0
        while at < len(rows):
            if rows[at]:
                at += 2  # HERE
                continue
            at += 1
    """,
    "takes": "while rows:\n    work(rows.pop())  # HERE\n",
    "halves": "while start > 1:\n    work(start)  # HERE\n    start = start // 2\n",
    "goes through items": "for row in rows:\n    work(row)  # HERE\n",
    "raises": "for row in rows:\n    if bad(row):  # HERE\n        raise ValueError\n",
    "left by its own number": "for at in range(world):\n    if at > 9:  # HERE\n        break\n",
    "endless, left by its own number": "at = 0\nwhile True:\n    at += 1  # HERE\n    if at > 9:\n        break\n",
    "each has its change": "a, b = 0, 9\nwhile a < 9 and b > 0:\n    a += 1  # HERE\n    b -= 1\n",
}
ASKS = {
    "value of another": "seen = 0\nwhile seen < world:\n    seen = counter.value  # HERE\n",
    "added value of another": "seen = 0\nwhile seen < world:\n    seen += counter.value - seen  # HERE\n",
    "sum of flags": "ready = 0\nwhile ready < world:\n    ready = sum(flags)  # HERE\n",
    "greatest flag": "ready = 0\nwhile ready < world:\n    ready = max(flags)  # HERE\n",
    "length": "ready = 0\nwhile ready < world:\n    ready = len(flags)  # HERE\n",
    "counted flags": """
        ready = 0
        while ready < world:
            count = 0
            for flag in flags:  # HERE
                if flag:
                    count += 1
            ready = count
    """,
    "bounded spin": "n = 0\nwhile flags[0] == 0 and n < 10**10:\n    n += 1  # HERE\n",
    "goes round flags": "at = 0\nwhile flags[at] == 0:\n    at = (at + 1) % 8  # HERE\n",
    "taken when done": "left = list(rows)\nwhile left:\n    if flags[left[-1]]:  # HERE\n        left.pop()\n",
    "put back": "while rows:\n    row = rows.pop()  # HERE\n    if not done(row):\n        rows.append(row)\n",
    "skipped": "at = 0\nwhile at < world:\n    if not done(at):\n        continue  # HERE\n    at += 1\n",
    "set back": "at = 0\nwhile at < world:\n    at += 1  # HERE\n    if not flags[at]:\n        at -= 1\n",
    "told by flags": """
        done = False
        while not done:
            done = True
            for flag in flags:  # HERE
                if not flag:
                    done = False
    """,
    "copies": "while len(rows) == 0:\n    items = rows  # HERE\n    rows = items[:]\n",
    "endless count": "for n in itertools.count():\n    if there(path):  # HERE\n        break\n",
    "bounded tries": "for n in range(10**9):\n    if there(path):  # HERE\n        return n\n",
    "bounded tries by exceptions": """
        for n in range(10**9):
            try:
                return open(path)  # HERE
            except FileNotFoundError:
                pass
    """,
    "bounded tries, begun anew": """
        for n in range(10**9):
            if not there(path):  # HERE
                continue
            break
    """,
    "iterates until": "for n in iter(counter.get, None):\n    work(n)  # HERE\n",
    "searches without an end": "return next(n for n in itertools.count() if there(path))  # HERE\n",
    "exceptions count": """
        seen = 0
        while seen < world:
            try:
                rows.append(counter.get_nowait())  # HERE
                seen += 1
            except Empty:
                pass
    """,
}


@pytest.mark.parametrize("name", list(ENDS))
def test_loop_that_changes_what_its_conditions_read_ends_alone(name: str) -> None:
    assert alone(ENDS[name])


@pytest.mark.parametrize("name", list(ASKS))
def test_loop_that_others_may_have_to_end_does_not(name: str) -> None:
    assert not alone(ASKS[name])
