"""When functions of the C library return null: of a file that cannot be opened, of a variable that is not set."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.view import ProcessView

_OPENS = ("fopen", "fopen64", "freopen", "opendir")
_FINDS = ("strchr", "strrchr", "strstr", "strpbrk", "strtok", "strtok_r", "strcasestr", "memchr", "memmem", "bsearch")
_QUOTED = 80


def null_when(view: ProcessView, text: str, function: str, given: Sequence[str]) -> str:
    """A sentence, with the path or the name as the source has it; "" of other functions."""
    first = _literal(text, given[0]) if given else None
    if function in _OPENS:
        reads = function == "opendir" or (len(given) > 1 and given[1].startswith('"r'))
        missing = "it does not exist here" if reads else "its folder does not exist here"
        what = "directory" if function == "opendir" else "file"
        fixed = "" if first is None else f" The path is always {_named(given[0], first)}: make it an argument."
        moved = _moved(view) if first is None or not first.startswith('"/') else ""
        kept = moved + _kept_open(text, function)
        return f" {function}() returns null where {missing}, or this user may not open the {what}.{fixed}{kept}"
    if function in ("getenv", "secure_getenv"):
        name = f"`{first[1:-1]}`" if first is not None else "a variable"
        return f" {function}() returns null where the environment does not have {name}."
    return f" {function}() returns null where it finds nothing." if function in _FINDS else ""


def _moved(view: ProcessView) -> str:
    """A sentence of the only call of os.chdir() in the program, behind which a relative path leads elsewhere."""
    frames = program_frames(view)
    calls = [
        (file, call)
        for file, tree, call in calls_named(program_files(view.process.snapshot, frames), "chdir")
        if call.args and not any(_comes_later(tree, call, item.line or 0) for item in frames if item.file == file)
    ]
    if len(calls) != 1:
        return ""
    file, call = calls[0]
    place, text = place_of(view, file, call.lineno), shortened(ast.unparse(call), _QUOTED)
    return (
        f" Where {place} (`{text}`) ran before, a relative path is looked up in that folder: make the path absolute "
        "above that line."
    )


def _comes_later(tree: ast.Module, call: ast.Call, running: int) -> bool:
    """Whether the function that runs a line has a call further below."""
    return call.lineno > running and scope_of(tree, call.lineno) is scope_of(tree, running)


def _kept_open(text: str, function: str) -> str:
    """A sentence, where the file has no call that closes what it opens: each round keeps one more open."""
    close = "closedir" if function == "opendir" else "fclose"
    if re.search(rf"\b(?:{close}|pclose|close|shared_ptr|unique_ptr)\b", text) is not None:
        return ""
    return f" Or where too many are open (`ulimit -n`): nothing in that file calls {close}(), so each call may add one."


def _named(given: str, literal: str) -> str:
    return f"`{literal}`" if given == literal else f"`{literal}` (`{given}`)"


def _literal(text: str, value: str) -> str | None:
    """`"/data/x"`: written there, or a macro or a constant of the file."""
    if re.fullmatch(r'"(?:\\.|[^"\\])*"', value):
        return shortened(value, _QUOTED)
    if not re.fullmatch(r"[A-Za-z_]\w*", value):
        return None
    ways = (
        rf'^[ \t]*#[ \t]*define[ \t]+{value}[ \t]+(?P<text>"(?:\\.|[^"\\\n])*")[ \t]*$',
        rf'\bconst\s+char\s*(?:\*\s*(?:const\s+)?{value}|{value}\s*\[\s*\w*\s*\])\s*=\s*(?P<text>"(?:\\.|[^"\\\n])*")\s*;',
    )
    found = [match["text"] for way in ways for match in re.finditer(way, text, re.MULTILINE)]
    return shortened(found[0], _QUOTED) if len(found) == 1 else None
