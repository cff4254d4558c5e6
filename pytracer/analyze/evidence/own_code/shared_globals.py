"""A global variable that two of the program's native libraries define by one name, and which is therefore only one.

The dynamic linker binds a name to the first definition in its scope: that of a library which was loaded with
RTLD_GLOBAL before, or of the one that was loaded, which comes before the libraries that it names as needed. What one of
them writes, the other one reads.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, list_words
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import image_name, memory_word
from pytracer.analyze.evidence.own_code.c_text import closing, function_around, statement_at, without_comments
from pytracer.analyze.evidence.own_code.calling_lines import lines_that_call
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.program_text import program_sources
from pytracer.analyze.evidence.own_code.source_files import source_levels
from pytracer.analyze.evidence.slicing.callers import calls_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import passed_values
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import LineWords, short_file
from pytracer.analyze.view import ProcessView
from pytracer.decode.symbols.demangle import demangle
from pytracer.decode.symbols.shared_variables import SharedVariable, SharedVariables, shared_variables
from pytracer.decode.types.snapshot import Crash, LoadedImage
from pytracer.report.job import NativeFrame

_WORD_BYTES, _MOST_BYTES = 8, 4096
_SETS = (
    r"(?<![\w.>]){name}\b\s*(?:(?:\[[^\]]*\]|\.\s*\w+)\s*)*(?:[-+*/%&|^]|<<|>>)?=(?!=)|"
    r"\b(?:memcpy|memmove|memset|fread)\s*\(\s*(?:\([^()]{0,40}\)\s*)?&\s*{name}\b"
)
_TYPE = Pattern(r"(?!static\b|extern\b|return\b|typedef\b)[A-Za-z_][\w:<>, ]*[ *]+")
_SIZES = Pattern(r"(?P<sizes>(?:\s*\[[^\]\n]{0,200}\])*)\s*(?:=(?!=)|;)")
_LONGEST = 200  # of what stands before the name in a declaration
_GLOBAL = "RTLD_GLOBAL"
_MOST = 3


class Declared(msgspec.Struct, frozen=True):
    """`uint64_t state[2]` at `sampler.c:4`; `writers`: functions of the file that set it."""

    text: str
    place: str
    writers: tuple[str, ...]


class SharedGlobal(msgspec.Struct, frozen=True):
    """`name` of `library`, in which the pointer lay, is the variable of `other` of that name, too.

    `used`: the place whose function goes through it, where its memory was not kept. `scope`: the line that makes names
    of libraries common, where one does. `calls`: lines that call writers of `other`.
    """

    name: str
    library: str
    other: str
    nbytes: int
    other_nbytes: int
    used: str | None
    declared: Declared | None
    other_declared: Declared | None
    scope: LineWords | None
    calls: tuple[LineWords, ...]

    @property
    def _writer(self) -> str:
        writers = self.other_declared.writers if self.other_declared is not None else ()
        names = " or ".join(f"{item}()" for item in writers)
        return f"{names} of {self.other}" if 0 < len(writers) <= _MOST else self.other

    @property
    def summary(self) -> str:
        """Behind a colon."""
        why = f", and RTLD_GLOBAL ({self.scope}) makes both one" if self.scope is not None else ", and both are one"
        holds = " holds it, likely written"
        if self.used is not None:
            holds = f", through which {self.used} goes, may have been overwritten"
            why = f", and RTLD_GLOBAL ({self.scope}) may make both one" if self.scope is not None else ""
            why = why or ", and both may be one"
        return (
            f"the global `{self.name}` of {self.library}{holds} by {self._writer}, whose own global has the same "
            f"name{why}"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        both = [f"`{item.text}` ({item.place})" for item in (self.declared, self.other_declared) if item is not None]
        where = f": {list_words(both)}" if both else ""
        load = f"; or load the libraries without RTLD_GLOBAL ({self.scope})" if self.scope is not None else ""
        calls, told = "", "that" if self.used is None else "whether"
        if self.calls:
            calls = f" {capital(list_words(self.calls, _MOST))} call{'s' * (len(self.calls) == 1)} what writes it."
        return (
            f"Make `{self.name}` static in both libraries, use two names, or compile with -fvisibility=hidden{where}"
            f"{load}.{calls} "
            f"`LD_DEBUG=bindings` prints {told} {self.other} is bound to `{self.name}` of {self.library}."
        )

    @property
    def words(self) -> str:
        """What the libraries on this machine have."""
        return (
            f"{self.library} ({self.nbytes} bytes) and {self.other} ({self.other_nbytes} bytes) both export a "
            f"variable `{self.name}`, and {self.other} uses it by its name"
        )


def shared_global(view: ProcessView, value: int, frame: NativeFrame) -> SharedGlobal | None:
    """The only variable that holds `value` at the crash, and that another library has as another one.

    Where the memory of none is known that does, the only one through which the function of `frame` goes.
    """
    crash = view.crash
    if crash is None:
        return None
    search = _Search(view, crash)
    found = [*search.holding(value)] or [*search.used(frame)]
    return found[0] if len(found) == 1 else None


class _Search:
    """Among the program's own libraries, as far as they are on this machine."""

    def __init__(self, view: ProcessView, crash: Crash) -> None:
        self._view, self._crash = view, crash
        own = [i for i in crash.images if is_own_path(i.path) and is_own_frame(NativeFrame(image=i.path))]
        self._own = [(image, shared_variables(image.path, image.build_id)) for image in own]

    @cached_property
    def _files(self) -> dict[str, ast.Module]:
        return program_files(self._view.process.snapshot, program_frames(self._view))

    @cached_property
    def _global_loads(self) -> list[tuple[str, ast.Call]]:
        """The calls of the program that pass RTLD_GLOBAL themselves."""
        calls = (
            (file, node) for file, tree in self._files.items() for node in nodes_of(tree) if isinstance(node, ast.Call)
        )
        return [(file, call) for file, call in calls if any(map(_is_global, passed_values(call)))]

    def _scope(self, holder: str, other: str) -> LineWords | None:
        """The line that loads the library `holder` so: by its name, or in a function that is called with both names."""
        for file, load in self._global_loads:
            if _names(load, holder):
                return place_of(self._view, file, load.lineno)
            scope = scope_of(self._files[file], load.lineno)
            if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            calls = [item.call for item in calls_of(self._files, file, scope)]
            if all(any(_names(call, library) for call in calls) for library in (holder, other)):
                return place_of(self._view, file, load.lineno)
        return None

    def holding(self, value: int) -> Iterator[SharedGlobal]:
        """Each variable that holds a value, with each library that has another one of that name."""
        for image, shared in self._own:
            for variable in shared.variables:
                if value in self._words(image, variable):
                    yield from self._of(image, shared, variable, None)

    def used(self, frame: NativeFrame) -> Iterator[SharedGlobal]:
        """The same of each one through which the function of a frame goes, where its memory was not kept."""
        source = next(iter(own_sources(frame)), None)
        if source is None:
            return
        text, number = "\n".join(source[1]), source[0].line or 1
        around = function_around(text, statement_at(source[1], number))
        end = closing(text, around.body) if around is not None else None
        body = without_comments(text[around.body : end]) if around is not None else ""
        place = f"{short_file(source[0].file or '')}:{number}"
        for image, shared in self._own:
            for variable in shared.variables if image.path == frame.image else ():
                name = re.escape(_own_name(variable.name))
                local = re.search(rf"[\w*&>]\s+[*&]*\s*{name}\s*[=;,]", body) is not None
                goes = re.search(rf"(?<![\w.>]){name}\s*(?:->|\[)|(?<![\w)\]])\s*\*\s*{name}\b", body) is not None
                given = around is not None and around.place_of(name) is not None
                if goes and not local and not given and not self._words(image, variable):
                    yield from self._of(image, shared, variable, place)

    def _of(
        self, image: LoadedImage, shared: SharedVariables, variable: SharedVariable, used: str | None
    ) -> Iterator[SharedGlobal]:
        for other, theirs in self._own:
            same = next((item for item in theirs.variables if item.name == variable.name), None)
            if other is not image and same is not None:
                yield from self._described((image, shared, variable), (other, theirs, same), used)

    def _words(self, image: LoadedImage, variable: SharedVariable) -> list[int]:
        """What is known of its memory."""
        start = image.bias + variable.addr
        places = range(start, start + min(variable.nbytes, _MOST_BYTES) - _WORD_BYTES + 1, _WORD_BYTES)
        return [word for addr in places if (word := memory_word(self._crash, addr)) is not None]

    def _described(
        self,
        mine: tuple[LoadedImage, SharedVariables, SharedVariable],
        theirs: tuple[LoadedImage, SharedVariables, SharedVariable],
        used: str | None,
    ) -> Iterator[SharedGlobal]:
        library, with_it = (image_name(image.path) for image, _, _ in (mine, theirs))
        linked = with_it in mine[1].needed  # it comes before what it needs
        scope = self._scope(library, with_it) if not linked else None
        declared, other = (self._declared(image.path, variable) for image, _, variable in (mine, theirs))
        differ = mine[2].nbytes != theirs[2].nbytes or (
            declared is not None and other is not None and declared.text != other.text
        )
        if not differ or (scope is None and not linked):
            return
        calls = tuple(dict.fromkeys(lines_that_call(self._view, other.writers))) if other is not None else ()
        yield SharedGlobal(
            name=demangle(mine[2].name),
            library=library,
            other=with_it,
            nbytes=mine[2].nbytes,
            other_nbytes=theirs[2].nbytes,
            used=used,
            declared=declared,
            other_declared=other,
            scope=scope,
            calls=calls,
        )

    def _declared(self, library: str, variable: SharedVariable) -> Declared | None:
        folders = {os.path.dirname(frame.file) for frame in program_frames(self._view) if frame.file}
        named = next(source_levels([library], sorted(folders)), [])
        found = [item for path, lines in named for item in _declarations(path, lines, variable.name)]
        if not found and not named:
            sources = program_sources(self._view, [library])
            found = [item for path, lines in sources for item in _declarations(path, lines, variable.name)]
        return found[0] if len(found) == 1 else None


def _is_global(node: ast.expr) -> bool:
    """Whether a mode has RTLD_GLOBAL: in it alone, and in no call that makes it."""
    parts = [*nodes_of(node)]
    named = any(isinstance(item, (ast.Name, ast.Attribute)) and last_name(item) == _GLOBAL for item in parts)
    return named and not any(isinstance(item, ast.Call) for item in parts)


def _names(call: ast.Call, library: str) -> bool:
    """Whether a call has the name of a library: `libreader.so`, or `reader`."""
    own = {library, library.partition(".")[0].removeprefix("lib")}
    texts = (item.value for value in passed_values(call) for item in nodes_of(value) if isinstance(item, ast.Constant))
    return any(isinstance(item, str) and item.rpartition("/")[2] in own for item in texts)


def _declarations(path: str, lines: Sequence[str], name: str) -> Iterator[Declared]:
    name = _own_name(name)
    text, word = without_comments("\n".join(lines)), re.escape(name)
    for match in re.finditer(rf"\b{word}\b", text):
        line, sizes = text.rfind("\n", 0, match.start()) + 1, _SIZES.match(text, match.end())
        before = text[line : match.start()] if match.start() - line <= _LONGEST else ""
        if sizes is None or _TYPE.fullmatch(before.replace("\t", " ")) is None:
            continue
        number = text.count("\n", 0, line) + 1
        sets = re.finditer(_SETS.replace("{name}", word), text)
        around = [function_around(text, item.start()) for item in sets]
        writers = tuple(dict.fromkeys(item.name for item in around if item is not None))
        declared = f"{' '.join(before.split())} {name}{''.join(sizes['sizes'].split())}".replace("* ", "*")
        yield Declared(declared, f"{short_file(path)}:{number}", writers)


def _own_name(symbol: str) -> str:
    """`state` of `shop::state`."""
    return demangle(symbol).rpartition("::")[2]
