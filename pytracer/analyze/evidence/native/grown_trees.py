"""The only line of a program that grows a tree by a level in each round of its loop, and what the loop goes through."""

from __future__ import annotations

import ast

from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.chains import chains, rounds_of
from pytracer.analyze.evidence.slicing.keepers import Files
from pytracer.analyze.evidence.slicing.wraps import Wrap
from pytracer.analyze.naming import line_in

_QUOTED = 44


def growing_line(files: Files) -> Wrap | None:
    """None where there are several."""
    found = chains(files)
    if len(found) != 1:
        return None
    chain = found[0]
    name = getattr(chain.scope, "name", None)
    text = ast.unparse(chain.node)
    return Wrap(
        chain.file, chain.node.lineno, text, name, looped=True, attribute=chain.attribute, owner=chain.owner, tree=True
    )


def rounds_words(files: Files, link: Wrap, here: str | None, *, brief: bool = False) -> str:
    """`. A `word` adds a level for each item: see the longest at line 9 (`trie.add(word)`)`.

    Nothing of a line that grows no tree. `here`: the file that is spoken of. `brief`: no more than one sentence.
    """
    if not link.tree:
        return ""
    chain = next((item for item in chains(files) if (item.file, item.node.lineno) == (link.file, link.line)), None)
    rounds = rounds_of(files, chain) if chain is not None else None
    if rounds is None:
        return ""
    at = line_in(rounds.file, rounds.line, here).quoted(shortened(rounds.text, _QUOTED))
    words = f". A `{rounds.name}` adds a level for each item: see the longest at {at}"
    if rounds.ends is None or rounds.by is None:
        return words
    file, line, text = rounds.ends
    opened = line_in(file, line, here).quoted(shortened(text, _QUOTED))
    ends = f". Lines of the file of {opened} end with {rounds.by!r} only: a file with other ends is one line"
    return ends if brief else f"{words}{ends}"
