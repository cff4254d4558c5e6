"""Native libraries that end the process by exit(): which function does, and below which condition of its source."""

from __future__ import annotations

import ast

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import function_words, shortened
from pytracer.analyze.deaths.ending import ending_in_mid_work
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.c_divisions import plain
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.waits.pipes import is_bootstrap
from pytracer.analyze.evidence.waits.waits import was_forked
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame, PythonFrame

LIBC = Pattern(r"libc[.-]")
_PYTHON = Pattern(r"(lib)?python\d|_ctypes|libffi")  # the interpreter, and its way into foreign functions
_OF_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/opt/")
_CALL = Pattern(r"\b_?_?[eE]xit\s*\(")
_IF = Pattern(r"\bif\s*(?:constexpr\s*)?$")
_LONGEST = 60


class ExitCondition(msgspec.Struct, frozen=True):
    """The `if` right around the call, as the source has it, and where: `!pixels`, `image.c:30`."""

    test: str
    place: str

    @property
    def words(self) -> str:
        """`` where `!pixels` holds (image.c:30) ``."""
        return f"where `{shortened(' '.join(self.test.split()), _LONGEST)}` holds ({self.place})"


def exit_caller(view: ProcessView) -> NativeFrame | None:
    """The innermost frame that is neither the C library's nor the interpreter's, if the call came from there."""
    outside = (frame for frame in own_frames(view) if not LIBC.match(image_name(frame.image)))
    first = next(outside, None)
    return None if first is None or _PYTHON.match(image_name(first.image)) else first


def own_library_exit(view: ProcessView) -> tuple[NativeFrame, PythonFrame] | None:
    """The function of the program's own native code that ended the process, and the line of the program that called it.

    Nothing behind that line ran, which a status of 0 hides. Libraries of packages and of the system do so on purpose.
    """
    if view.process.status_kind != "exited" or ending_in_mid_work(view.process.snapshot.ending) is None:
        return None
    caller = exit_caller(view)
    frame = next((item for item in view.python_stack or () if not is_library_file(item.file)), None)
    if caller is None or frame is None or not is_of_own_image(caller):
        return None
    image = caller.image or ""
    return None if is_library_file(image) or image.startswith(_OF_SYSTEM) else (caller, frame)


def ends_unasked(view: ProcessView) -> bool:
    """Whether it did so by status 0, where something of the program was still to run behind the line.

    Not a child that native code itself forked: it has copies of its parent's frames, and never returns to them.
    """
    if view.process.exit_code != 0 or own_library_exit(view) is None:
        return False
    if was_forked(view) and not any(is_bootstrap(frame) for frame in view.python_stack or ()):
        return False
    own = [frame for frame in view.python_stack or () if not is_library_file(frame.file)]
    return any(_goes_on(syntax_tree(view.process.snapshot, frame), frame) for frame in own)


def _goes_on(tree: ast.Module | None, frame: PythonFrame) -> bool:
    """Whether the line's function has more behind it, or around it in a loop; also where its source is not known."""
    if tree is None or frame.line is None:
        return True
    scope = scope_of(tree, frame.line)
    body = [] if isinstance(scope, ast.Lambda) else scope.body
    return bool(loops_around(tree, frame.line)) or not body or (body[-1].end_lineno or 0) > frame.line


def library_condition(frame: NativeFrame) -> ExitCondition | None:
    """The `if` of the call's own block, or of its statement alone, where the function's source is here."""
    source = own_source(frame)
    if source is None or source[0].line is None:
        return None
    line, text = source[0], "\n".join(source[1][: source[0].line])
    code = plain(text)
    call = _CALL.search(code, code.rfind("\n") + 1)
    if call is None:
        return None
    before = code[: call.start()]
    block = _opening(before, "{", "}")
    for head in (before.rstrip(), before[:block].rstrip() if block is not None else ""):
        begins = _opening(head[:-1], "(", ")") if head.endswith(")") else None
        if begins is not None and _IF.search(head[:begins]):
            number = head.count("\n", 0, begins) + 1
            return ExitCondition(text[begins + 1 : len(head) - 1].strip(), f"{short_file(line.file or '')}:{number}")
    return None


def function_of(frame: NativeFrame) -> str:
    """`load_image()`, for what the reader should change; the library's name where the function has none."""
    return f"{function_words(frame.function)}()" if frame.function else image_name(frame.image)


def _opening(text: str, opens: str, closes: str) -> int | None:
    """Where the bracket is that is open at the end of a text."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        if text[at] == closes:
            depth += 1
        elif text[at] == opens and depth == 0:
            return at
        elif text[at] == opens:
            depth -= 1
    return None
