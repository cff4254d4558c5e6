"""An exception of C++ that nobody caught: whose function it left, and who can catch it there."""

from __future__ import annotations

import ast

from pytracer._text import function_words, shortened
from pytracer.analyze.evidence.exceptions.name_origins import passed_words
from pytracer.analyze.evidence.exceptions.telling import torchscript_error
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.native.fault_function import is_own_frame, own_function
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.converted_text import CONVERTERS, converted_text
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.own_place import own_place
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.own_code.thread_joins import LEFT, left_std_thread, thread_join
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 80
_REGION = "_omp_fn"  # GCC's name for the body of a region
_STD_THREAD = "std::thread::_State_impl"


def below_words(view: ProcessView, caller: str) -> str:
    """`, below residuals (main.cpp:18)`, or `, in a thread of resize_all() (main.cpp:11)`, whose lambda it runs.

    On a std::thread of the program's library also that, and who waited for it.
    """
    place, join = own_place(view), thread_join(view)
    if caller.startswith(_STD_THREAD):
        of_thread = (
            f", in a thread of {place.function}() ({place.place})" if place is not None else ", in a std::thread"
        )
        return of_thread + (f": {join.clause}" if join is not None else "")
    own = place is not None and place.function == caller.rpartition("::")[2]
    inlined = f", in {place.function} ({place.place})" if place is not None and not own else ""
    below = f", below {caller}" + (f" ({place.place})" if own and place is not None else inlined)
    if not left_std_thread(view):
        return below
    return f"{below}: {join.clause if join is not None else LEFT}"


def refused_text(name: str, message: str) -> str | None:
    """What std::stof() and the like refuse: libstdc++ has only the function's name for a message."""
    if message not in CONVERTERS:
        return None
    return {"std::invalid_argument": "a text that is no number", "std::out_of_range": "a number out of range"}.get(name)


def _refused_words(view: ProcessView, line: PythonFrame | None) -> str:
    """A sentence: where the text may come from, that a line passed by `encode()`."""
    exception = cpp_exception(view)
    refused = refused_text(exception.type or "", exception.what or "") if exception is not None else None
    tree = syntax_tree(view.process.snapshot, line)
    if refused is None or tree is None or line is None or line.line is None:
        return ""
    converted = converted_text(view)
    if converted is not None:
        return f" {converted.advice}"
    calls = [item for item in calls_on(tree, line.line) if called_name(item) == "encode"]
    given = [ast.unparse(item.func.value) for item in calls if isinstance(item.func, ast.Attribute)]
    if len(given) != 1:
        return f" Look for {refused} in what {place_words(line)} passes, or in what the library reads itself."
    texts = f" (`{given[0]}`)"
    return (
        f" Look for {refused} in what {place_words(line)} passes{texts}, in a file of that name, or in what the "
        "library reads itself."
    )


def of_script(view: ProcessView) -> str | None:
    """An exception of a TorchScript model on a native thread is the error of its input, which Python would show."""
    exception = cpp_exception(view)
    if exception is None or torchscript_error(exception.what or "") is None:
        return None
    return (
        f"Call the model in Python first, with each of the inputs that {line_words(view)} passes: it raises this error "
        "there, with its lines. On a thread of native code nothing can catch it."
    )


def into_ctypes(view: ProcessView) -> str | None:
    """Of an exception that left C code which ctypes called."""
    function = own_function(view)
    if function is None or not called_by_ctypes(view):
        return None
    catch = "ctypes cannot hand exceptions on: catch them in the function that it calls, and return an error."
    place, refused = own_place(view), _refused_words(view, next(iter(program_frames(view)), None))
    if place is not None and refused:
        return f"{place.place} is `{shortened(place.text, _QUOTED)}`.{refused} {catch}"
    return (
        f"What was thrown is the reason: look for it below {function.words}, in what {line_words(view)} passes. {catch}"
    )


def below_line(view: ProcessView) -> str | None:
    """Of an exception that left native code which a line of the program called on the thread that died."""
    frame = next(iter(program_frames(view)), None)
    crash = view.crash
    if frame is None or crash is None or not crash.python_stack:
        return None
    passed = passed_words(view.process.snapshot, frame)
    given = f" ({passed})" if passed is not None else ""
    return (
        f"The message says what was refused: compare it with what {line_words(view)} passes{given}. It would be an "
        "ordinary error of Python, if it had not left a function that may not throw (a noexcept function or a "
        "destructor), where C++ ends the process."
    )


def on_own_thread(view: ProcessView) -> str | None:
    """Of an exception on a thread that the program's native code runs, which called it from no Python."""
    crash = view.crash
    function = _function_on_thread(view)
    region = in_region(view)
    native = crash is not None and not crash.python_stack and crash.tid != view.process.snapshot.pid
    if crash is None or function is None or not (native or region):
        return None
    waiting = next(iter(program_frames(view)), None)
    calls = " calls it" if waiting is not None and not native else ""
    given = (
        f" ({'' if calls else 'the main thread was at '}{place_words(waiting)}{calls})" if waiting is not None else ""
    )
    if region:
        return (
            f"Catch it inside of the parallel region: no exception may leave one. {function}{given} can keep "
            "std::current_exception() and rethrow it behind the region, as at::parallel_for() does: "
            "then Python shows its message as an ordinary error."
        )
    join = thread_join(view)
    if join is not None:
        return (
            f"Catch it in the thread that it left: nobody else can, no `try` around join() either. Keep "
            f"std::current_exception() in what the thread runs ({function}), rethrow it in {join.function}() after "
            f"join(), {join.hands_on}.{_refused_words(view, join.at)}"
        )
    return (
        f"Catch it in the thread that it left: nobody else can. {function}{given} can keep std::current_exception() "
        "there; what joins the thread can rethrow it after join(), as at::parallel_for() does: then Python shows its "
        "message as an ordinary error."
    )


def in_region(view: ProcessView) -> bool:
    """Whether it left a parallel region of the program's own: the thread that opened one takes part in it."""
    if view.region_opener is not None:
        return True
    named = next((item for item in own_frames(view) if item.function and is_own_frame(item)), None)
    return named is not None and _REGION in (named.function or "")


def _function_on_thread(view: ProcessView) -> str | None:
    """`residuals()`, or `resize_all() (main.cpp:11)` where a lambda of it runs there."""
    frames = [item for item in own_frames(view) if item.function and is_own_path(item.image)]
    named = next((item for item in frames if is_own_frame(item)), None)
    if named is not None:
        return f"{function_words(named.function or '')}()"
    place = own_place(view) if frames else None
    return f"{place.function}() ({place.place})" if place is not None else None
