"""What DDP sends beside buckets: tensors that a communication hook makes of one, and zeros of a joined rank.

The call of a hook is a scope, which identifies both exactly. Hooks built into C++ have no scope, and neither have calls
from a callback of a hook, on a thread of the backend: those are matched by size and place, and marked as guessed.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from itertools import accumulate

from pytracer.analyze.tensors.ddp import DdpBuckets
from pytracer.analyze.tensors.journal import ByAddress, lived_at
from pytracer.analyze.tensors.scopes import HookCall, hook_call, joined_module
from pytracer.decode.types.journal import Hook
from pytracer.decode.types.snapshot import Collective, Snapshot, Storage

_HALF = ("float16", "bfloat16")
_FLOAT32_BYTES = 4
CalledTensor = tuple[Collective, bool]  # a tensor of a collective: its first output, else its first input


class CommHooks:
    """The communication hooks of one process. `hooks`: by DDP module; None is one whose name was not known yet."""

    def __init__(self, snapshot: Snapshot, ddp: DdpBuckets, tensors: ByAddress[CalledTensor]) -> None:
        self._collectives, self._ddp, self._tensors = snapshot.collectives, ddp, tensors
        self.hooks: dict[str | None, str] = {fact.data.module: fact.data.hook for fact in snapshot.recorded(Hook)}

    def sent_for(self, item: Collective) -> tuple[tuple[str, ...], int | None]:
        """Names of what a collective sends in place of a bucket, and the index of that bucket."""
        module = joined_module(item.scope)
        if module is not None:
            return (f"zeros in place of a bucket of {module}: this rank has joined",), None
        call = hook_call(item.scope)
        guessed = call is None
        if call is None and item.scope is None and item.op == "all_reduce":
            call = self._builtin(item) or self._called_back(item)
        if call is None:
            return (), None
        bucket = self._ddp.named(call.module, call.index, item.scheduled_ns)
        name = bucket.name if bucket else f"DDP bucket {call.index} of {call.module}"
        return (
            f"tensor of communication hook {call.hook} for {name}{', guessed' if guessed else ''}",
            name,
        ), call.index

    def sent_from_storage(self, storage: Storage) -> str | None:
        """What a collective sent from one allocation lifetime of a storage, if that was not the bucket itself."""
        for item, is_output in reversed(self._tensors.within(storage)):
            if is_output or item.epoch is None or not lived_at(storage, item.epoch):
                continue
            names, _ = self.sent_for(item)
            if names:
                return names[0]
        return None

    def _builtin(self, item: Collective) -> HookCall | None:
        """FP16_COMPRESS: as many elements as one bucket has, at half the size."""
        fitting = [
            HookCall(hook, module, bucket.index)
            for module, hook in self.hooks.items()
            if module is not None and hook == "FP16_COMPRESS" and item.dtype in _HALF
            for bucket in self._ddp.before(module, item.scheduled_ns)
            if bucket.nbytes // _FLOAT32_BYTES == item.numel
        ]
        return fitting[0] if len(fitting) == 1 else None

    def _called_back(self, item: Collective) -> HookCall | None:
        """From a thread without any line of the program's, after the hook of a module that has one bucket only."""
        if item.caller is not None:
            return None
        numbers, calls = self._called_before
        last = calls[bisect_left(numbers, item.number)]
        if last is None or len(self._ddp.before(last.module, item.scheduled_ns)) != 1:
            return None  # the callback's bucket is unknown
        return last

    @cached_property
    def _called_before(self) -> tuple[list[int], list[HookCall | None]]:
        """The highest number up to each collective, and the last call of a hook before each, and after all of them."""
        numbers = list(accumulate((item.number for item in self._collectives), max))
        calls: list[HookCall | None] = [None]
        for item in self._collectives:
            over = item.scope is None and item.caller is not None  # the program's own: the backward is over
            calls.append(None if over else hook_call(item.scope) or calls[-1])
        return numbers, calls
