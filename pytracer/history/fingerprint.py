"""What makes two deaths the same one: its cause without addresses, ranks, pids, hosts, sizes and line numbers.

Of a crash: class, rule, signal or exception, the program's own Python frames by file name and function, the library's
function that the innermost of them called, and the operator; where none is known, the innermost native functions above
the interpreter. A native frame without a name is given by build id and offset, which are the same on every machine with
that library, and only if no function is known above it: systems differ in their libraries. Where the process happened
to be does not matter when somebody else ended it.

Line numbers are left out, so that an edit above does not make a new crash of an old one; two bugs in one function are
told apart by exception, function called, operator and native functions only. A change of these rules is a new
`VERSION`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, takewhile

from pytracer._library_files import counted_as_program, is_library_file
from pytracer.report import job as r
from pytracer.report.of_verdict import finding_of, program_packages_of, subject_of

VERSION = 2

_PYTHON_FRAMES = 5
_NATIVE_FRAMES = 4
_MESSAGE = 100
# Ended from outside, or by the kernel: the stack is where it was, not why it died.
_FROM_OUTSIDE = ("external-kill", "oom-kill", "resource-limit", "clean", "recovered")
# Each rank ends in its own way: a time-out here, a closed connection there. What they disagreed on is the cause.
_OF_RANKS = ("collective-mismatch", "missing-rank", "hang")
# What these quote are names in the program, which are the cause; what others quote may be data.
_NAMES_CODE = ("NameError", "UnboundLocalError", "AttributeError", "TypeError", "ImportError", "ModuleNotFoundError")
# Python functions of libraries between the one that was called and whatever it is that it does.
_WRAPPERS = ("_wrapped_call_impl", "_call_impl", "__call__", "wrapper", "wrapped", "inner", "decorate_context", "_fn")
# How every abort ends, whatever its reason.
_PLUMBING = re.compile(
    r"^(_?_?(raise|abort|pthread_kill\w*|kill|gsignal|libc_message\w*|assert_fail\w*|restore_rt|libc_fatal|fortify_fail"
    r"|stack_chk_fail|GI_\w+)|malloc_printerr|std::terminate.*|std::rethrow_exception.*|__cxa_\w+|__cxxabiv1::.*"
    r"|_start|clone3?|start_thread|__libc_start_\w+|pytracer::.*)$"
)
# How torch comes to a kernel: which of it is a function of its own depends on processor, compiler and the loop's size.
_MACHINERY = re.compile(
    r"(^|::)(invoke_parallel|parallel_for|serial_for_each|for_each|(un)?vectorized_\w+|basic_loop|loop_2d\w*|cpu_kernel\w*"
    r"|function_ref|callback_fn|operator_call|call|wrap_kernel_functor\w*|make_boxed\w*)(::|$)|^(GOMP_|omp_|kmp)\w*"
)
# How Python calls native code: below it only the program's Python frames matter.
_INTERPRETER = re.compile(r"^(_?Py[A-Z_]\w*|_Py\w+|cfunction_\w+|method_vectorcall\w*|slot_\w+|ffi_call\w*)$")
_VARIANT = re.compile(r"_(?:avx\w*|sse\w*|ssse3\w*|evex\w*|erms|unaligned\w*|sve|mops|falkor|kunpeng\w*|thunderx\w*)")
_DISPATCHED = re.compile(r"\b(DEFAULT|AVX2|AVX512|SVE256|ZVECTOR|VSX)::")  # at::native's copies for each processor
_CLONE = re.compile(r"(\.(constprop|isra|part|cold|lto_priv)(\.\d+)?|\[clone [^]]*\]|\[abi:\w+\])+")
_NUMBERED = re.compile(r"(lambda|unnamed type|#)\W*\d+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_VARYING = re.compile(r"(?:/[\w.+-]+)+|\b0x[0-9a-f]+\b|[\w.-]+:\d+|-?\b\d[\d.,e+-]*\w*", re.IGNORECASE)


def fingerprint(report: r.Report) -> str:
    """`f2-` and 16 hexadecimal digits: equal for deaths of one cause. It begins with the version of its rules."""
    digest = hashlib.sha256("\n".join(fingerprint_parts(report)).encode("utf-8", "backslashreplace")).hexdigest()
    return f"f{VERSION}-{digest[:16]}"


def fingerprint_parts(report: r.Report) -> tuple[str, ...]:
    """What is hashed, in its order; to see why two deaths are one, or two."""
    with counted_as_program(program_packages_of(report)):
        return _parts(report)


def _parts(report: r.Report) -> tuple[str, ...]:
    verdict = report.verdict or r.Verdict()
    died, finding = subject_of(report), finding_of(report)
    parts = [f"class {verdict.class_ or 'unknown'}", f"rule {(finding.id if finding is not None else None) or 'none'}"]
    if died is not None:
        parts += _end(died, verdict.class_)
        if verdict.class_ not in _FROM_OUTSIDE:
            parts += [f"called {function}" for function in _called(died)]
            parts += [f"at {frame}" for frame in own_places(died)]
            parts += _operation(died)
    parts += _sent(verdict)
    parts += _disagreement(report)
    return tuple(parts)


def python_stack(died: r.ProcessReport) -> list[r.PythonFrame]:
    """Of the crashed thread, else of the exception that ended the process; innermost first."""
    raised = died.exception.python_stack if died.exception is not None else None
    return died.python_stack or raised or []


def own_places(died: r.ProcessReport) -> list[str]:
    """`train.py:step`, innermost first, a recursion once; of libraries where the program has no frame."""
    stack = python_stack(died) or _python_of_others(died)
    own = [frame for frame in stack if not is_library_file(frame.file)] or stack
    return _folded((f"{_name(frame.file)}:{frame.function or '?'}" for frame in own), _PYTHON_FRAMES)


def _called(died: r.ProcessReport) -> list[str]:
    """The function of a library that the program's innermost frame called: `functional.py:embedding`."""
    stack = python_stack(died) or _python_of_others(died)
    above = list(takewhile(lambda frame: is_library_file(frame.file), stack))
    if len(above) == len(stack):
        return []
    direct = (frame for frame in reversed(above) if frame.function not in _WRAPPERS)
    return [f"{_name(frame.file)}:{frame.function}" for frame in islice(direct, 1)]


def _python_of_others(died: r.ProcessReport) -> list[r.PythonFrame]:
    """Of the thread that a thread without Python worked for: it opened the parallel region, or is the main thread.

    Which thread of OpenMP's meets a bad index first is chance.
    """
    opener = died.parallel_region_opener
    threads = [thread for thread in died.threads or () if thread.python_stack]
    of_opener = [thread for thread in threads if opener is not None and thread.tid == opener.tid]
    main = [thread for thread in threads if thread.kind == "main"]
    return next((thread.python_stack or [] for thread in [*of_opener, *main]), [])


def native_names(stack: Sequence[r.NativeFrame]) -> list[str]:
    """The innermost functions, as they are called on every machine; without frames that were guessed."""
    certain = (frame for frame in stack if frame.found != "scanned" and not _is_plumbing(frame.function or ""))
    above = list(takewhile(lambda frame: not _INTERPRETER.match(frame.function or ""), certain))
    named = [name for name in map(_function, above) if name]
    return _folded(named, _NATIVE_FRAMES) if named else [site for site in map(_unnamed, above[:1]) if site]


def _is_plumbing(function: str) -> bool:
    return bool(_PLUMBING.match(function) or (function and _MACHINERY.search(_plain(function))))


def normalized_message(message: str, type_: str | None = None) -> str:
    """The first line, without what varies: numbers, addresses, paths, what is quoted but for names in code."""
    line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    if (type_ or "").rsplit(".", 1)[-1] not in _NAMES_CODE:
        line = _QUOTED.sub("#", line)
    return _VARYING.sub("#", line)[:_MESSAGE]


def _end(died: r.ProcessReport, class_: str | None) -> Iterator[str]:
    if class_ in _OF_RANKS:
        return
    raised = class_ == "python-exception"  # a signal that met it while it tore down is chance
    if not raised and died.signal is not None and died.signal.name:
        yield f"signal {died.signal.name}"
        if died.signal.sender_command:
            yield f"sender {_name(died.signal.sender_command[0])}"
    elif died.exception is None and died.status is not None and died.status.exit_code:
        yield f"status {died.status.exit_code}"
    if died.exception is not None:
        raised_by = died.exception
        yield f"exception {raised_by.type}: {normalized_message(raised_by.message or '', raised_by.type)}"


def _sent(verdict: r.Verdict) -> list[str]:
    """The line of the recorded program that sent the signal: who ends a process, and for what, is the cause."""
    senders = (fact.python for fact in verdict.facts or () if fact.kind == "sender")
    return list(
        dict.fromkeys(f"sent at {_name(place.file)}:{place.function}" for place in senders if place is not None)
    )


def _operation(died: r.ProcessReport) -> list[str]:
    """The operator; without one, native functions: what they are called depends on processor and compiler."""
    if died.operator is not None and died.operator.name:
        return [f"operator {died.operator.name}"]
    return [f"in {name}" for name in native_names(died.native_stack or ())]


def _disagreement(report: r.Report) -> list[str]:
    """Ranks that did different things: which ones in which order is chance, what they did is not."""
    groups = (report.collectives.groups if report.collectives is not None else None) or []
    found = [group.mismatch for group in groups if group.mismatch is not None]
    if not found:
        return []
    lines = {_call(variant) for variant in found[0].variants or ()}
    return [f"ranks disagree on {found[0].field}", *sorted(lines)]


def _call(variant: r.MismatchVariant) -> str:
    operation = (variant.call or "?").split(" ", 1)[0]
    place = variant.python
    return f"{operation} at {_name(place.file)}:{place.function}" if place is not None else operation


def _function(frame: r.NativeFrame) -> str | None:
    return _DISPATCHED.sub("", _VARIANT.sub("", _plain(frame.function))).lstrip("_") if frame.function else None


def _plain(function: str) -> str:
    """`at::native::cpu_index` of its demangled name: no types, no clones, no numbers of lambdas."""
    name = _NUMBERED.sub(r"\1", _without_arguments(_CLONE.sub("", function)))
    return name.removesuffix(" const").rsplit(" ", 1)[-1]  # of a template, the type that it returns stands before it


def _unnamed(frame: r.NativeFrame) -> str | None:
    if frame.build_id:
        return f"{frame.build_id}+{frame.offset}"
    return _name(frame.image) if frame.image else None


def _without_arguments(function: str) -> str:
    """Without template and function arguments: they hold types whose spelling differs between compilers."""
    out, depth = [], 0
    for character in function.replace("(anonymous namespace)::", "").replace("operator()", "operator_call"):
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth = max(depth - 1, 0)
        elif not depth:
            out.append(character)
    return "".join(out).strip()


def _folded(names: Iterable[str], most: int) -> list[str]:
    return list(islice((name for name, _ in groupby(names)), most))


def _name(path: str | None) -> str:
    return (path or "?").rsplit("/", 1)[-1]
