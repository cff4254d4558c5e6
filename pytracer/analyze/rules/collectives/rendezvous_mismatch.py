"""rendezvous-mismatch: the processes of a job called init_process_group() with values that do not fit together.

What: MASTER_ADDR, MASTER_PORT, WORLD_SIZE or RANK, from the environment or as arguments, as each process passed them.
One looks for the store of rank 0 elsewhere, expects another number of ranks, or has the rank of another process.

Why it happens: a script starts the ranks by hand and counts wrongly; the program computes a port or a rank itself;
MASTER_ADDR is localhost on several hosts; a second job uses the same port.

What to do: let one launcher set all of them (torchrun), or compare what each process was given.

How it can be wrong: two different names may lead to one host, so that another MASTER_ADDR is merely *likely*. Processes
that passed a store of their own to init_process_group() are not compared, nor are those that met.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from pytracer._text import capital, list_words, span_words, time_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.collectives.own_methods import own_method
from pytracer.analyze.collectives.rendezvous import Join, Mismatch, find_mismatch
from pytracer.analyze.collectives.world_size import argument_words, environment_setting
from pytracer.analyze.deaths.attribution import symptom_evidence
from pytracer.analyze.evidence.syntax.calls import options_passed
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_main_part, spans
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.rules.account import account
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView
from pytracer.decode.types.journal import Rendezvous
from pytracer.decode.types.storages import PythonFrame
from pytracer.report.job import Confidence, Evidence

_LISTED = 4
_STOOD_NS = 1_000_000_000
_OPTIONS = {"twice": "rank", "world-size": "world_size"}
_ADVICE = {
    "store": "Give all processes the same {0}: it leads to the store, which rank 0 makes. torchrun sets it.",
    "world-size": "Give all processes the same {0}: the number of all processes of the job. torchrun sets it.",
    "twice": "Give each process a {0} of its own, from 0 to WORLD_SIZE - 1, and each job on a host a MASTER_PORT of "
    "its own. torchrun sets both.",
}


class RendezvousMismatch:
    """Fires once, for the first calls that could not meet."""

    id = "rendezvous-mismatch"
    needs = ("RENDEZVOUS",)

    def check(self, job: JobView) -> tuple[Judgement[Mismatch], ...] | NoFinding:
        """At most one judgement."""
        found = find_mismatch(job)
        if found is not None:
            return (_judge(job, found),)
        if any(view.process.snapshot.recorded(Rendezvous) for view in job.views):
            return not_found("all processes that waited in init_process_group() had called it with values that fit")
        return not_found("no call of init_process_group() was recorded")

    def describe(self, job: JobView, judgement: Judgement[Mismatch]) -> Description:
        """See Rule."""
        found = judgement.found
        return Description(
            f"{_summary(found)}.",
            [
                *(_given(join) for side in found.sides for join in side[:_LISTED]),
                _waited(found),
                *symptom_evidence(job),
            ],
            _replaced_rank(found) or _ADVICE[found.kind].format(found.variable) + _set_at(found),
            [
                "a third process: which value is wrong is undecidable"
                if found.tie and not _is_set_by_each(found)
                else None,
                "whether these names lead to different hosts" if found.variable == "MASTER_ADDR" else None,
            ],
            behind=_behind(found),
        )


def _behind(found: Mismatch) -> Behind:
    """What the call passes for the argument that is wrong; without one the environment has it."""
    caller = _line(found.sides[0][:1])
    frame = python_frame(caller) if caller is not None else None
    tree = syntax_tree(found.sides[0][0].view.process.snapshot, frame)
    option = _OPTIONS.get(found.kind)
    if tree is None or frame is None or frame.line is None or option is None:
        return Behind()
    return Behind.of(options_passed(tree, frame.line, option))


def _judge(job: JobView, found: Mismatch) -> Judgement[Mismatch]:
    views = tuple(join.view for join in found.odd)
    confidence: Confidence = "certain"
    if found.kind == "store" and (found.variable == "MASTER_ADDR" or not found.whole):
        confidence = "likely"
    several = found.tie or found.kind == "twice"
    judgement = Judgement("misuse", confidence, views, found, undecided=several)
    if not job.deaths:
        return replace(judgement, accompanies=True)
    did = {} if several else {join.data.rank or 0: f"had another {found.variable}" for join in found.odd}
    waited_ns = max(join.waited_ns for side in found.sides for join in side)
    why = "the processes could not meet in init_process_group()"
    return account(job, judgement, why, did, waited_ns=waited_ns, ends=True)


def _summary(found: Mismatch) -> str:
    first, variable = found.sides[0], found.variable
    line = _line(found.odd)
    at = f" at {place_words(python_frame(line))}" if line is not None else ""
    if found.kind == "twice":
        pids = list_words([str(join.view.process.snapshot.pid) for join in first])
        nobody = f"; no process had {span_words(found.missing)}" if found.missing else ""
        several = f" and {len(found.sides) - 1} more ranks likewise" if len(found.sides) > 1 else ""
        return f"Processes {pids} called init_process_group(){at} as rank {first[0].data.rank}{several}{nobody}"
    if found.tie:
        each = "; ".join(f"{_who(side)} with {variable}={_value(found, side[0])}" for side in found.sides[:_LISTED])
        setting = _setting(found) if _is_set_by_each(found) else None
        sets = f": line {setting[0]} sets it to `{setting[1]}` in each process" if setting is not None else ""
        stood = "waited for each other in" if _is_without_end(found) else "called"
        return f"Ranks {stood} init_process_group(){at} with different values, {each}{sets}"
    other = found.sides[1]
    return (
        f"{capital(_who(other))} called init_process_group(){at} with {variable}={_value(found, other[0])}, "
        f"{_who(first)} with {_value(found, first[0])}"
    )


def _replaced_rank(found: Mismatch) -> str | None:
    """Where the launcher gave each process a RANK of its own, and the program passes another one."""
    joins, line = found.sides[0], _line(found.sides[0])
    given = [join.view.process.snapshot.environment.get("RANK") for join in joins]
    passed = all("rank" in join.data.passed for join in joins)
    if found.kind != "twice" or not passed or None in given or len(set(given)) < len(given):
        return None
    frame = python_frame(line) if line is not None else None
    words = argument_words(joins[0].view.process.snapshot, frame, "rank") or "the argument `rank`"
    return (
        f"Leave out {words}: it is {joins[0].data.rank} in each of these processes, and replaces RANK, "
        f"which their launcher had set to {list_words([str(item) for item in given])}. Without it init_process_group() "
        "takes RANK."
    )


def _setting(found: Mismatch) -> tuple[int, str] | None:
    """The line of the program that sets the variable, and to what; None for "twice", whose variable is in its place."""
    join, caller = found.sides[0][0], _line(found.sides[0][:1])
    frame = python_frame(caller) if caller is not None else None
    return environment_setting(join.view.process.snapshot, frame, found.variable)


def _is_set_by_each(found: Mismatch) -> bool:
    """Whether each process came to that line: nothing decides about it, and none has the value that it began with."""
    setting, caller = _setting(found), _line(found.sides[0][:1])
    tree = syntax_tree(found.sides[0][0].view.process.snapshot, python_frame(caller) if caller is not None else None)
    if setting is None or tree is None or deciding_ifs(tree, setting[0]):
        return False
    tries = (item for item in nodes_of(tree) if isinstance(item, (ast.Try, ast.If)) and not is_main_part(item))
    if any(spans(item, setting[0]) for item in tries):
        return False
    joins = [join for side in found.sides for join in side]
    return all(join.view.process.snapshot.environment.get(found.variable) != _value(found, join) for join in joins)


def _is_without_end(found: Mismatch) -> bool:
    """Whether all of them stood in their calls until their processes ended."""
    return all(join.done_ns is None and join.waited_ns > _STOOD_NS for side in found.sides for join in side)


def _set_at(found: Mismatch) -> str:
    """` Line 18 sets it to `free_port()` where each process runs: ...`, where the program does."""
    line = _setting(found)
    if line is None:
        own = own_method(found.sides[0][0].view, _line(found.sides[0][:1]))
        return f" {own}" if own is not None else ""
    return (
        f" Line {line[0]} sets it to `{line[1]}`: where each process computes that for itself, compute it once, before "
        "they are started, and pass it to them."
    )


def _who(side: Sequence[Join]) -> str:
    return span_words([join.data.rank for join in side if join.data.rank is not None])


def _value(found: Mismatch, join: Join) -> str:
    data = join.data
    if found.kind == "world-size":
        return str(data.world_size)
    if found.variable == "MASTER_PORT":
        return str(data.master_port)
    if found.variable == "MASTER_ADDR":
        return f"{data.master_addr} on {join.view.process.snapshot.host}"
    return f"file://{data.file}" if data.file is not None else f"{data.master_addr}:{data.master_port}"


def _line(joins: Sequence[Join]) -> PythonFrame | None:
    """Where all of them called it."""
    callers = {join.data.caller for join in joins}
    caller = next(iter(callers)) if len(callers) == 1 else None
    return PythonFrame(caller.function, caller.file, caller.line) if caller is not None else None


def _given(join: Join) -> Evidence:
    """`rank 2, pid 4711: RANK=2, WORLD_SIZE=3, MASTER_ADDR=node0, MASTER_PORT=29501 (29500 when it started)`."""
    data, box = join.data, join.view.process.snapshot
    values: dict[str, int | str | None] = {
        "RANK": data.rank,
        "WORLD_SIZE": data.world_size,
        "LOCAL_RANK": data.local_rank,
    }
    values |= {"MASTER_ADDR": data.master_addr, "MASTER_PORT": data.master_port, "file": data.file}
    words = [
        f"{name}={value}{_before(box.environment.get(name), value, name, data)}"
        for name, value in values.items()
        if value is not None
    ]
    line = _line([join])
    return Evidence(
        "environment",
        f"pid {box.pid} on {box.host} had {', '.join(words)}",
        rank=data.rank,
        pid=box.pid,
        host=box.host,
        python=python_frame(line) if line is not None else None,
    )


def _before(started: str | None, value: object, name: str, data: Rendezvous) -> str:
    """That the program changed the variable, or passed the value instead."""
    passed = name.lower() in data.passed or (name.startswith("MASTER_") and "init_method" in data.passed)
    if passed:
        return " (argument)"
    return f" ({started} when it started)" if started is not None and started != str(value) else ""


def _waited(found: Mismatch) -> Evidence | None:
    longest = max((join for side in found.sides for join in side), key=lambda join: join.waited_ns)
    if longest.done_ns is not None or not longest.waited_ns:
        return None
    words = f"rank {longest.data.rank} was in init_process_group() for {time_words(longest.waited_ns)}"
    return Evidence("rank-state", words, rank=longest.data.rank, duration_ns=longest.waited_ns)
