"""The tree of names in the recording, from Python: ownership. The core itself reads where tensors lie.

Nothing is kept alive, and no tensor gets a weak reference: torch.utils.swap_tensors refuses tensors that have one.
Addresses of Python objects are kept for identity; the core follows an address only while its TensorImpl is the same.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Generic, TypeVar

from pytracer.blackbox.note_codes import NoteCode
from pytracer.blackbox.numbers import Entry, NameRole
from pytracer.record.bootstrap.dynamo import unseen
from pytracer.record.core import Core

if TYPE_CHECKING:
    from pytracer.record.torch_objects import Module, Optimizer, Tensor

TRANSPARENT, FOLLOWED, HELD = 1, 2, 4  # NameSlot.flags
WRAPPERS = frozenset(("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel"))
TRANSPARENT_NAMES = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
_PLAIN = (("torch", "Tensor"), ("torch.nn.parameter", "Parameter"))
MOST_TEXTS = 16384
LONGEST_TEXT = 160
KEPT_GONE = 4096  # minimum number of deaths before a slot is reused
SAME_NAME = 1024  # tensors of one user name

K = TypeVar("K")
K_co = TypeVar("K_co", covariant=True)


class _Owner(Generic[K_co]):
    """A module or optimizer: its slot, and those of its tensors by key."""

    __slots__ = ("ref", "slot", "tensors")

    def __init__(self, slot: int, ref: weakref.ref[K_co]) -> None:
        self.slot, self.ref = slot, ref
        self.tensors: dict[object, tuple[int, int]] = {}  # key -> slot, id of the tensor


class NameTable:
    """Slots of one process. All calls under the GIL."""

    def __init__(self, box: Core) -> None:
        self._box = box
        self._texts: dict[str, int] = {}
        self._modules: dict[int, _Owner[Module]] = {}
        self._optimizers: dict[int, _Owner[Optimizer]] = {}
        self._tensor_slots: dict[int, int] = {}  # id of a parameter -> its slot
        self._gone: deque[int] = deque()
        self._named: dict[str, OrderedDict[int, int]] = {}  # user name -> id of a tensor -> slot
        self._complained = False

    def modules(self) -> list[Module]:
        """Live modules."""
        return [module for owner in list(self._modules.values()) if (module := owner.ref()) is not None]

    def optimizers(self) -> list[Optimizer]:
        """Live optimizers."""
        return [optimizer for owner in list(self._optimizers.values()) if (optimizer := owner.ref()) is not None]

    def module(self, module: Module) -> _Owner[Module]:
        """The owner of that module; a new one is recorded with all its contents."""
        owner = self._modules.get(id(module))
        if owner is not None and owner.ref() is module:
            return owner
        owner = self._owner(self._modules, module, NameRole.MODULE, type(module).__name__)
        self.contents(module)
        return owner

    def registered(self, module: Module, key: str, tensor: Tensor, *, parameter: bool) -> None:
        """`module.key` is about to be `tensor`."""
        self._tensor(self.module(module), NameRole.PARAMETER if parameter else NameRole.BUFFER, key, tensor)

    def contents(self, module: Module) -> None:
        """Records the tensors and children of a module again, with their current addresses."""
        owner, attributes = self.module(module), module.__dict__
        for role, name in ((NameRole.PARAMETER, "_parameters"), (NameRole.BUFFER, "_buffers")):
            for key, tensor in list((attributes.get(name) or {}).items()):
                if tensor is not None:
                    self._tensor(owner, role, key, tensor)
        for key, child in list((attributes.get("_modules") or {}).items()):
            if child is not None:
                self.child(module, key, child)

    def child(self, module: Module, key: str, child: Module) -> None:
        """`module.key` is `child`."""
        parent, owner = self.module(module), self.module(child)
        wrapped = key in TRANSPARENT_NAMES or (key == "module" and type(module).__name__ in WRAPPERS)
        if parent is not owner:
            flags = TRANSPARENT if wrapped else 0
            self._write(owner.slot, NameRole.MODULE, key, parent.slot, flags, id(child), 0)

    def knows(self, optimizer: Optimizer) -> bool:
        """Whether its state was recorded before."""
        owner = self._optimizers.get(id(optimizer))
        return owner is not None and owner.ref() is optimizer

    def optimizer_state(self, optimizer: Optimizer, kind: type[Tensor]) -> None:
        """Records the optimizer's state tensors of each parameter."""
        if not self.knows(optimizer):
            self._owner(self._optimizers, optimizer, NameRole.MODULE, type(optimizer).__name__)
        owner = self._optimizers[id(optimizer)]
        groups = list(optimizer.param_groups)
        order = {id(p): (g, i) for g, group in enumerate(groups) for i, p in enumerate(group["params"])}
        for param, state in list(optimizer.state.items()):
            parent = self._parameter_slot(owner, param, order.get(id(param)))
            for key, value in list(state.items()) if isinstance(state, dict) else ():
                for name, tensor in _tensors_in(str(key), value, kind):
                    self._note(owner, (id(param), name), NameRole.STATE, name, parent, 0, tensor)

    def user_name(self, text: str, tensor: Tensor) -> None:
        """The program's own name for a tensor."""
        slots = self._named.setdefault(text, OrderedDict())
        slot = slots.pop(id(tensor), 0)
        if not slot and len(slots) >= SAME_NAME:
            _, slot = slots.popitem(last=False)
            self._box.held.pytracer_name_gone(slot)
        local = local_part(tensor)
        slot = self._write(slot, NameRole.USER, text, 0, 0, id(local), item_bytes(local))
        if slot:
            slots[id(tensor)] = slot

    def _tensor(self, owner: _Owner[object], role: int, key: str, tensor: Tensor) -> None:
        flags, held = FOLLOWED if role == NameRole.PARAMETER else 0, (0, 0)
        if role == NameRole.BUFFER and local_part(tensor) is tensor:
            flags, held = HELD, (id(owner.ref().__dict__["_buffers"]), id(key))
        slot = self._note(owner, key, role, key, owner.slot, flags, tensor, held)
        if slot and role == NameRole.PARAMETER:
            self._tensor_slots[id(tensor)] = slot

    def _note(
        self, owner: _Owner[object], key: object, role: int, text: str, parent: int, flags: int, tensor: Tensor,
        held: tuple[int, int] = (0, 0),
    ) -> int:  # fmt: skip
        known, local = owner.tensors.get(key, (0, 0))[0], local_part(tensor)
        slot = self._write(known, role, text, parent, flags, id(local), item_bytes(local), held)
        if slot:
            owner.tensors[key] = slot, id(tensor)
        return slot

    def _parameter_slot(self, owner: _Owner[object], param: Tensor, place: tuple[int, int] | None) -> int:
        slot = self._tensor_slots.get(id(param), 0)
        if slot:
            return slot
        group, index = place or (0, 0)
        key = f"{index} of group {group} of {type(owner.ref()).__name__}"  # of no known module
        self._tensor(owner, NameRole.PARAMETER, key, param)
        return self._tensor_slots.get(id(param), 0)

    @unseen
    def _owner(self, owners: dict[int, _Owner[K]], thing: K, role: int, text: str) -> _Owner[K]:
        key = id(thing)

        def gone(ref: weakref.ref[K]) -> None:
            owner = owners.get(key)
            if owner is not None and owner.ref is ref:
                del owners[key]
                self._forget(owner)

        owner = owners[key] = _Owner(0, weakref.ref(thing, gone))
        owner.slot = self._write(0, role, text, 0, 0, key, 0)
        return owner

    def _forget(self, owner: _Owner[object]) -> None:
        for slot, tensor in ((owner.slot, 0), *owner.tensors.values()):
            self._box.held.pytracer_name_gone(slot)
            self._gone.append(slot)
            if self._tensor_slots.get(tensor) == slot:
                del self._tensor_slots[tensor]

    def _write(
        self, slot: int, role: int, text: str, parent: int, flags: int, address: int, nbytes: int,
        held: tuple[int, int] = (0, 0),
    ) -> int:  # fmt: skip
        name = self._text(text)
        if not slot and len(self._gone) > KEPT_GONE:
            slot = self._gone.popleft()
        if not name:
            return 0
        return int(self._box.held.pytracer_name(slot, int(role), name, parent, flags, address, nbytes, *held))

    def _text(self, text: str) -> int:
        number = self._texts.get(text)
        if number is None:
            if len(self._texts) < MOST_TEXTS:
                number = self._texts[text] = self._box.journal(Entry.NAME, text[-LONGEST_TEXT:])
            if not number and not self._complained:
                self._complained = True
                self._box.note(NoteCode.NAMES, "there is no room for more names: tensors that come later have none")
        return number or 0


def local_part(tensor: Tensor) -> Tensor:
    """This process's part of a DTensor, which has no storage of its own; other tensors unchanged."""
    return tensor._local_tensor if type(tensor).__name__ == "DTensor" else tensor


def item_bytes(tensor: Tensor) -> int:
    """Size of an element, without calling a subclass's __torch_function__."""
    kind = type(tensor)
    if (kind.__module__, kind.__name__) in _PLAIN:
        return int(tensor.element_size())
    import torch

    with torch._C.DisableTorchFunctionSubclass():
        return int(tensor.element_size())


def _tensors_in(key: str, value: object, kind: type[Tensor]) -> list[tuple[str, Tensor]]:
    """`kind`: torch.Tensor."""
    if isinstance(value, kind):
        return [(key, value)]
    if type(value) is list or type(value) is tuple:
        return [(f"{key}[{index}]", item) for index, item in enumerate(value) if isinstance(item, kind)]
    return []
