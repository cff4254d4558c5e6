"""Names of tensors: parameters, buffers, optimizer state, and names given by the program.

Modules are recorded when something is registered in them (torch's registration hooks), when they are copied or
unpickled, moved and loaded. Nothing runs in a forward or backward pass. After an optimizer's step the core reads where
the tensors lie, and now and then everything is recorded again; each takes at most one part in 1000 of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.bootstrap.dynamo import is_compiling, unseen
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.config import records_values
from pytracer.record.core import Core
from pytracer.record.torch import layout_probe

if TYPE_CHECKING:
    from pytracer.record.torch.name_table import NameTable
    from pytracer.record.torch_objects import Hook, Module, Optimizer, Tensor

SHARE = 1000  # recording everything again takes at most one part in this many of the time
DEEPEST, MOST_NAMED = 4, 4096  # tensors of one call of name()

NEVER = (1 << 63) - 1

T = TypeVar("T")

_patches = Patches()
_handles: list[Hook] = []
_table: NameTable | None = None
_recorder: _Recorder | None = None


def install(box: Core, objects: list[object]) -> None:
    """Registers the hooks. `objects`, the garbage collector's, include modules and optimizers created before."""
    global _recorder
    if not layout_probe.learn(box, values=records_values()):
        box.note(
            NoteCode.NAMES,
            "tensors are not named: this torch, or this CPython, lays them out in a way that is not known",
        )
        return
    _recorder = _Recorder(box)
    _recorder.install()
    _recorder.guarded(_recorder.find_older, objects)


def uninstall() -> None:
    """Removes hooks and patches. What was recorded stays."""
    global _recorder
    _recorder = None
    while _handles:
        _handles.pop().remove()
    _patches.put_back()


@unseen
def name(tensors: T, text: str) -> T:
    """Names a tensor in reports: `pytracer.name(cache, "kv_cache")`.

    Tensors in lists, tuples and dicts get the names `text[0]`, `text['key']`; other objects are ignored. Costs about 2
    us per tensor. Nothing is kept alive or changed; the name applies to the storage that the tensor has now. Does
    nothing if recording is off, or inside a function compiled by torch.compile, where the tensor may never exist.

    Args:
        tensors: a tensor, or a list, tuple or dict of them, also nested.
        text: the name; of a long one the last 160 characters are kept.

    Returns:
        `tensors`, unchanged.
    """
    recorder = _recorder
    if recorder is not None and not is_compiling():
        recorder.guarded(recorder.name, tensors, str(text))
    return tensors


def attend(optimizer: Optimizer) -> int:
    """After a step: records a new optimizer, or everything when it is time. Returns when to be called again, in ns."""
    recorder = _recorder
    return recorder.attend(optimizer) if recorder is not None else NEVER


class _Recorder:
    """The hooks of one recording."""

    def __init__(self, box: Core) -> None:
        import torch

        self._box, self._torch = box, torch
        self._complained = False
        self._noted_ns = 0  # when everything may be recorded again

    @property
    def _table(self) -> NameTable:
        """Imported with the first module or name: many processes have none."""
        global _table
        if _table is None:
            from pytracer.record.torch.name_table import NameTable

            _table = NameTable(self._box)
        return _table

    def install(self) -> None:
        from torch.nn.modules import module as m
        from torch.optim.optimizer import Optimizer

        _handles.extend(
            (
                m.register_module_parameter_registration_hook(self._on_parameter),
                m.register_module_buffer_registration_hook(self._on_buffer),
                m.register_module_module_registration_hook(self._on_module),
            )
        )
        self._after(m.Module, "__setstate__", self._note_contents)  # deepcopy and unpickling register nothing
        self._after(m.Module, "_apply", self._note_contents)  # to(), cuda(), half(): replace buffers
        self._after(m.Module, "load_state_dict", self._note_tree)  # may swap tensors
        self._after(Optimizer, "load_state_dict", self._note_state)

    @unseen
    def guarded(self, act: Callable[..., object], *args: object) -> None:
        """An error costs names, never the program."""
        try:
            act(*args)
        except Exception as error:
            self._box.lib.pytracer_count_hook_error()
            if not self._complained:
                self._complained = True
                self._box.note(NoteCode.NAMES, f"some tensors are not named: {type(error).__name__}: {error}")

    def find_older(self, objects: list[object]) -> None:
        """Modules and optimizers created before recording started."""
        module, optimizer = self._torch.nn.Module, self._torch.optim.Optimizer
        for thing in objects:
            kind = type(thing)  # not isinstance: proxies report other types by __class__
            if issubclass(kind, module) and "_parameters" in thing.__dict__:
                self._table.module(cast("Module", thing))
            elif issubclass(kind, optimizer):
                self._note_state(cast("Optimizer", thing))

    def name(self, tensors: object, text: str) -> None:
        """See the function of that name."""
        todo: list[tuple[str, object, int]] = [(text, tensors, 0)]
        left = MOST_NAMED
        while todo and left:
            said, value, depth = todo.pop()
            left -= 1
            if isinstance(value, self._torch.Tensor):
                self._table.user_name(said, value)
            elif depth < DEEPEST and isinstance(value, list | tuple):
                todo += [(f"{said}[{i}]", item, depth + 1) for i, item in enumerate(value)]
            elif depth < DEEPEST and isinstance(value, dict):
                todo += [(f"{said}[{key!r}]", item, depth + 1) for key, item in value.items()]

    def _after(self, owner: object, attribute: str, note: Callable[[T], None]) -> None:
        _patches.after(owner, attribute, lambda thing: self.guarded(note, thing))

    @unseen
    def _on_parameter(self, module: Module, key: str, tensor: Tensor | None) -> None:
        if not is_compiling():
            self.guarded(self._register, module, key, tensor, True)

    @unseen
    def _on_buffer(self, module: Module, key: str, tensor: Tensor | None) -> None:
        if not is_compiling():
            self.guarded(self._register, module, key, tensor, False)

    def _register(self, module: Module, key: str, tensor: Tensor | None, parameter: bool) -> None:
        if tensor is not None:
            self._table.registered(module, key, tensor, parameter=parameter)

    @unseen
    def _on_module(self, module: Module, key: str, child: Module | None) -> None:
        if child is not None and not is_compiling():
            self.guarded(self._note_child, module, key, child)

    def attend(self, optimizer: Optimizer) -> int:
        """See the function of that name."""
        start = time.monotonic_ns()
        if start >= self._noted_ns:
            self.guarded(self._note_all, optimizer)
            end = time.monotonic_ns()
            self._noted_ns = end + SHARE * (end - start)
        else:
            self.guarded(self._note_new, optimizer)
        return self._noted_ns

    def _note_all(self, optimizer: Optimizer) -> None:
        for module in self._table.modules():
            self._table.contents(module)
        for one in {id(one): one for one in (optimizer, *self._table.optimizers())}.values():
            self._note_state(one)

    def _note_state(self, optimizer: Optimizer) -> None:
        self._table.optimizer_state(optimizer, self._torch.Tensor)

    def _note_new(self, optimizer: Optimizer) -> None:
        if not self._table.knows(optimizer):
            self._note_state(optimizer)

    def _note_child(self, module: Module, key: str, child: Module) -> None:
        self._table.child(module, key, child)

    def _note_contents(self, module: Module) -> None:
        self._table.contents(module)

    def _note_tree(self, module: Module) -> None:
        for part in module.modules():
            self._table.contents(part)
