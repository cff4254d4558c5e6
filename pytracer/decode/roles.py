"""Which process is a rank, which one launches, which ones were merely started by a rank.

A RANK entry of the process itself settles it. Without one, as in a job that dies before `init_process_group`, the
environment has to do, and every child inherits that: among a process and its descendants with the same RANK, the rank
is the first one that runs Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytracer.decode.snapshot import Snapshot

_AGENTS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "torch/distributed/run.py")


@dataclass
class Standing:
    """What a process is in its job."""

    role: str = "process"
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None


class _Node:
    """One process in the tree of processes; `boxes` are its own, oldest first."""

    def __init__(self, boxes: Sequence[Snapshot]) -> None:
        self.boxes = boxes
        self.box = boxes[-1]
        self.parent: _Node | None = None
        self.children: list[_Node] = []
        self.standing = Standing()
        self.own_rank = _own_rank(self.box)
        self.env_rank = _number(self.box.environment.get("RANK"))
        argv = self.box.argv[0].rpartition("/")[2] if self.box.argv else ""
        self.python = bool(self.box.python_minor or self.box.versions.get("torch") or argv.startswith("python"))

    def ancestors(self) -> Iterator[_Node]:
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


def decide_roles(lineages: Sequence[Sequence[Snapshot]]) -> list[Standing]:
    """Roles for processes given by their boxes (oldest first, the last one counts); in the same order."""
    nodes = [_Node(boxes) for boxes in lineages]
    _link(nodes)
    for node in nodes:
        if node.own_rank is not None:
            _make_rank(node, node.own_rank)
    for node in nodes:
        if node.env_rank is None or _inherits(node):
            continue
        chosen = _first_python(node)
        # A shell around a rank has its RANK too; so does everything that a rank starts.
        if not _is_rank_or_related(chosen):
            _make_rank(chosen, {})
    for node in nodes:
        if node.standing.role != "rank":
            node.standing.role = _other_role(node)
    return [node.standing for node in nodes]


def _link(nodes: Sequence[_Node]) -> None:
    by_pid: dict[tuple[str, str, int], list[_Node]] = {}
    for node in nodes:
        by_pid.setdefault((node.box.host, node.box.boot_id, node.box.pid), []).append(node)
    for node in nodes:
        candidates = by_pid.get((node.box.host, node.box.boot_id, node.box.ppid), [])
        # A parent started before its child; ticks are 10 ms, so both may show the same one.
        older = [p for p in candidates if p is not node and _birth(p) < _birth(node)]
        if older:
            node.parent = max(older, key=_birth)
            node.parent.children.append(node)


def _birth(node: _Node) -> tuple[int, int]:
    return node.box.start_ticks, node.boxes[0].created_mono_ns


def _own_rank(box: Snapshot) -> dict[str, Any] | None:
    own = [f.data for f in box.facts if f.kind == "RANK" and f.mono_ns >= box.created_mono_ns]
    return own[-1] if own else None


def _inherits(node: _Node) -> bool:
    parent = node.parent
    return parent is not None and any(_number(b.environment.get("RANK")) == node.env_rank for b in parent.boxes)


def _first_python(node: _Node) -> _Node:
    """The process itself when it runs Python, else the nearest descendant with the same RANK that does."""
    level = [node]
    while level:
        for candidate in level:
            if candidate.python:
                return candidate
        level = [c for n in level for c in n.children if c.env_rank == node.env_rank]
    return node


def _make_rank(node: _Node, entry: dict[str, Any]) -> None:
    environment = node.box.environment
    node.standing = Standing(
        "rank",
        entry.get("rank", node.env_rank),
        _first(entry.get("local_rank"), _number(environment.get("LOCAL_RANK"))),
        _first(entry.get("world_size"), _number(environment.get("WORLD_SIZE"))),
    )


def _other_role(node: _Node) -> str:
    if node.box.dataloader_worker or _is_worker_thread(node.box):
        return "dataloader-worker"
    if any(n.standing.role == "rank" for n in node.ancestors()):
        return "child"
    if any(a in argument for argument in node.box.argv[:4] for a in _AGENTS) or _has_rank_below(node):
        return "launcher"
    return "child" if any(n.python for n in node.ancestors()) else "process"


def _is_worker_thread(box: Snapshot) -> bool:
    """torch names the main thread of a DataLoader worker "pt_data_worker" (torch 2.13, utils/data/_utils/worker.py)."""
    names = {t.name for t in box.threads if t.tid == box.pid}
    if box.crash is not None and box.crash.tid == box.pid:
        names.add(box.crash.thread_name)
        if any(
            f.function == "_worker_loop" and f.file.endswith("data/_utils/worker.py") for f in box.crash.python_stack
        ):
            return True
    return any(name.startswith("pt_data_worker") for name in names)


def _is_rank_or_related(node: _Node) -> bool:
    return (
        node.standing.role == "rank"
        or _has_rank_below(node)
        or any(n.standing.role == "rank" for n in node.ancestors())
    )


def _has_rank_below(node: _Node) -> bool:
    todo = list(node.children)
    while todo:
        child = todo.pop()
        if child.standing.role == "rank":
            return True
        todo.extend(child.children)
    return False


def _first(a: int | None, b: int | None) -> int | None:
    return b if a is None else a


def _number(text: str | None) -> int | None:
    """A small decimal number, as in RANK=3; anything else is None."""
    return int(text) if text is not None and len(text) <= 9 and text.isascii() and text.isdigit() else None
