"""Who started whom among the recorded processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytracer.analyze.view import ProcessView

_FORK_SERVER = "from multiprocessing.forkserver import main"


class Tree:
    """Parents and children among the recorded processes.

    multiprocessing's fork server, the default since CPython 3.14, is nobody's parent: the process that started it asks
    for the children, and waits for them.
    """

    def __init__(self, views: Sequence[ProcessView]) -> None:
        self._by_pid = {self._key(view, view.process.snapshot.pid): view for view in views}
        self.parent = {view.index: self._asked_by(view) for view in views}
        self.children: dict[int, list[ProcessView]] = {}
        for view in views:
            parent = self.parent[view.index]
            if parent is not None and parent.index != view.index:
                self.children.setdefault(parent.index, []).append(view)

    def _asked_by(self, view: ProcessView) -> ProcessView | None:
        parent = self._forked_by(view)
        if parent is None or not any(_FORK_SERVER in word for word in parent.process.snapshot.argv):
            return parent
        above = self._forked_by(parent)
        # Its children have its command line, too: one of them that forks is a parent.
        is_child = above is not None and above.process.snapshot.argv == parent.process.snapshot.argv
        return parent if above is None or is_child else above

    def _forked_by(self, view: ProcessView) -> ProcessView | None:
        return self._by_pid.get(self._key(view, view.process.snapshot.ppid))

    @staticmethod
    def _key(view: ProcessView, pid: int) -> tuple[str, str, int]:
        snapshot = view.process.snapshot
        return snapshot.host, snapshot.boot_id, pid

    def ancestors(self, view: ProcessView) -> Iterator[ProcessView]:
        """The recorded processes above `view`, the nearest first."""
        seen, above = {view.index}, self.parent[view.index]
        while above is not None and above.index not in seen:
            seen.add(above.index)
            yield above
            above = self.parent[above.index]

    def descendants(self, view: ProcessView) -> Iterator[ProcessView]:
        """All recorded processes below `view`."""
        todo, seen = [view.index], {view.index}
        while todo:
            for child in self.children.get(todo.pop(), ()):
                if child.index not in seen:
                    seen.add(child.index)
                    todo.append(child.index)
                    yield child
