"""State of DistributedDataParallel: names of parameters and buffers, and the layout of its gradient buckets.

The Reducer releases its first buckets at the start of the second forward and creates new ones in the order in which
gradients became ready (with static_graph one iteration later, with find_unused_parameters never). A new bucket may
reuse an old address, so a bucket is identified by address, size and generation.

A communication hook often sends other tensors than the bucket: its collectives are called in a scope that names the
hook and the bucket. So are those of a joined rank, which sends zeros.
"""

from __future__ import annotations

import functools
import weakref
from types import ModuleType
from typing import TYPE_CHECKING

from pytracer.blackbox.note_codes import NoteCode
from pytracer.blackbox.numbers import Entry
from pytracer.record.bootstrap.best_effort import BestEffort
from pytracer.record.bootstrap.dynamo import unseen, unseen_frame
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.torch import process_groups
from pytracer.record.torch.library import TorchLibrary
from pytracer.record.torch.rendezvous import calling_line
from pytracer.record.torch.scopes import scope, within

if TYPE_CHECKING:
    from pytracer.record.torch_objects import CommHook, DdpModule, GradBucket, Tensor

CLOSE_ITERATIONS = 8  # buckets are rebuilt within the first three
LATER_EVERY = 64

_patches = Patches()
_wrapped: weakref.WeakKeyDictionary[DdpModule, _Wrapped] = weakref.WeakKeyDictionary()
_forwards_to_skip: dict[int, int] = {}  # by id() of live modules
_names_used: dict[str, int] = {}
_asked_for: dict[int, object] = {}  # static_graph of the modules that are being made, by id()
_best_effort = BestEffort()
_BUCKETS = "DDP's buckets"
# What decides which collectives DDP calls, and of which sizes (torch 2.11 to 2.14): the option, and the attribute.
_FLAGS = (
    ("find_unused_parameters", "find_unused_parameters"),
    ("static_graph", "static_graph"),
    ("broadcast_buffers", "broadcast_buffers"),
    ("broadcast_buffers", "forward_sync_buffers"),
    ("skip_all_reduce_unused_params", "skip_all_reduce_unused_params"),
)
_LATE = "lazy_bucket_allocation"  # torch 2.15: outside of a backward the Reducer refuses to be asked for its buckets
_MIB = 1 << 20
_BEFORE_COLLECTIVES = (
    "_build_params_for_reducer"  # __init__ calls it between its options and its collectives (2.11 to 2.14)
)


class _Wrapped:
    """One DDP module: its name, its parameters' names, and the last recorded layout."""

    def __init__(self, module: DdpModule) -> None:
        kind = type(module.module).__name__
        _names_used[kind] = _names_used.get(kind, 0) + 1
        self.name = kind if _names_used[kind] == 1 else f"{kind} #{_names_used[kind]}"
        self.kind = kind
        # _cdata is the address of the TensorImpl, which identifies the Reducer's parameters
        self.fqns = {parameter._cdata: fqn for fqn, parameter in module.module.named_parameters()}
        self.settings: dict[str, bool | float] = {}
        self.layout: object = None
        self.generation = -1
        self.looks = 0
        weakref.finalize(module, _forwards_to_skip.pop, id(module), None).atexit = False


def install(box: Core, hooks: TorchLibrary) -> None:
    """Wraps methods of DistributedDataParallel, and the registration of communication hooks with the Reducer."""
    import torch.distributed as dist
    from torch.compiler import is_compiling  # directly: torch is imported here, and a wrapper would be one frame more
    from torch.nn.parallel import DistributedDataParallel

    @unseen
    def note_begun(module: DdpModule) -> None:
        _best_effort(box, _BUCKETS, _note_begun, box, module)

    @unseen
    def note_made(module: DdpModule) -> None:
        _best_effort(box, _BUCKETS, _note_made, box, hooks, module)

    original = DistributedDataParallel._pre_forward  # rebuilds the buckets when it is time

    @functools.wraps(original)
    def pre_forward_and_look(module: DdpModule, /, *args: object, **kwargs: object) -> object:
        result = original(module, *args, **kwargs)
        if not is_compiling():
            left = _forwards_to_skip.get(id(module), 0)
            if left:  # nearly always: of all Python code here, only this runs in each step
                _forwards_to_skip[id(module)] = left - 1
            else:
                _best_effort(box, _BUCKETS, _refresh, box, hooks, module)
        return result

    if hasattr(DistributedDataParallel, _BEFORE_COLLECTIVES):
        _patches.after(DistributedDataParallel, _BEFORE_COLLECTIVES, note_begun)
    initialize = DistributedDataParallel.__init__

    @functools.wraps(initialize)
    def initialize_and_note(module: DdpModule, /, *args: object, **kwargs: object) -> None:
        if is_compiling():
            initialize(module, *args, **kwargs)
            return
        _asked_for[id(module)] = kwargs.get("static_graph", False)
        try:
            initialize(module, *args, **kwargs)
        finally:
            _asked_for.pop(id(module), None)
        note_made(module)

    _patches.replace(DistributedDataParallel, "__init__", initialize_and_note)
    _patches.replace(DistributedDataParallel, "_pre_forward", pre_forward_and_look)
    _install_join(box, hooks, DistributedDataParallel)
    _install_hooks(box, dist)


def _install_join(box: Core, hooks: TorchLibrary, kind: type[DdpModule]) -> None:
    """A joined rank rebuilds its buckets, too, and sends zeros in their place (torch 2.11 to 2.14)."""
    original = getattr(kind, "_match_all_reduce_for_bwd_pass", None)
    if original is None:
        return

    @functools.wraps(original)
    def send_zeros(self: DdpModule, /, *args: object, **kwargs: object) -> object:
        _best_effort(box, _BUCKETS, _refresh, box, hooks, self)
        wrapped = _wrapped.get(self)
        name = scope(box, f"DDP::join ({wrapped.name if wrapped else '?'})")
        return within(box, name, original, self, *args, **kwargs)

    _patches.replace(kind, "_match_all_reduce_for_bwd_pass", send_zeros)


def _install_hooks(box: Core, dist: ModuleType) -> None:
    """Wraps only what the Reducer calls: the module keeps its own hook."""
    register, builtin = getattr(dist, "_register_comm_hook", None), getattr(dist, "_register_builtin_comm_hook", None)
    if register is not None:

        @functools.wraps(register)
        def register_in_scope(reducer: object, state: object, hook: CommHook) -> object:
            return register(
                reducer, state, _best_effort(box, "a communication hook", _in_scope, box, reducer, hook) or hook
            )

        _patches.replace(dist, "_register_comm_hook", register_in_scope)
    if builtin is not None:

        @functools.wraps(builtin)
        def register_and_note(reducer: object, kind: object) -> object:
            _best_effort(box, "a communication hook", _note_hook, box, reducer, str(kind).rpartition(".")[2])
            return builtin(reducer, kind)

        _patches.replace(dist, "_register_builtin_comm_hook", register_and_note)


@unseen
def _module_of(reducer_id: int) -> _Wrapped | None:
    """By id(): a hook that referenced its Reducer would keep it alive."""
    return next((item for module, item in _wrapped.items() if id(getattr(module, "reducer", None)) == reducer_id), None)


def _note_hook(box: Core, reducer: object, name: str) -> None:
    wrapped = _module_of(id(reducer))
    box.journal(Entry.HOOK, {"module": wrapped.name if wrapped else None, "hook": name})


def _in_scope(box: Core, reducer: object, hook: CommHook) -> CommHook:
    name, reducer_id = getattr(hook, "__qualname__", type(hook).__name__), id(reducer)
    _note_hook(box, reducer, name)
    scopes: dict[int, int] = {}

    @unseen
    def scope_of(index: int) -> int:
        wrapped = _module_of(reducer_id)
        scopes[index] = scope(box, f"DDP::comm_hook {name} ({wrapped.name if wrapped else '?'} {index})")
        return scopes[index]

    @unseen_frame
    @functools.wraps(hook)
    def hook_in_scope(state: object, bucket: GradBucket) -> object:
        index = bucket.index()
        return within(box, scopes.get(index) or scope_of(index), hook, state, bucket)

    return hook_in_scope


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()


def _note_begun(box: Core, module: DdpModule) -> None:
    """While its __init__ runs: a rank may die in the collectives of that."""
    if module not in _wrapped:
        _note_module(box, module)


def _note_made(box: Core, hooks: TorchLibrary, module: DdpModule) -> None:
    wrapped = _wrapped.get(module)
    if wrapped is None or wrapped.settings != _settings(module):
        wrapped = _note_module(box, module, wrapped)
    _write_layout(box, hooks, module, wrapped)


def _note_module(box: Core, module: DdpModule, wrapped: _Wrapped | None = None, *, made: bool = True) -> _Wrapped:
    """`wrapped`: as it was noted before. `made`: by the line that calls; else wrapped before recording began."""
    process_groups.note_rank(box)
    if wrapped is None:
        wrapped = _wrapped[module] = _Wrapped(module)
    wrapped.settings = _settings(module)
    tensors = [("parameter", name, tensor) for name, tensor in module.module.named_parameters()]
    tensors += [("buffer", name, tensor) for name, tensor in module.module.named_buffers()]
    box.journal(
        Entry.MODULE,
        {
            "module": wrapped.name,
            "class": wrapped.kind,
            "wrapper": "DistributedDataParallel",
            "tensors": [_describe(role, name, tensor) for role, name, tensor in tensors],
            "settings": wrapped.settings,
            "caller": calling_line() if made else None,
        },
    )
    return wrapped


def _settings(module: DdpModule) -> dict[str, bool | float]:
    """By the names that DistributedDataParallel takes them by."""
    held = vars(module)
    found: dict[str, bool | float] = {option: held[name] for option, name in _FLAGS if type(held.get(name)) is bool}
    cap = held.get("bucket_bytes_cap")
    if type(cap) is int:
        found["bucket_cap_mb"] = cap / _MIB
    found["mixed_precision"] = held.get("mixed_precision") is not None
    asked = _asked_for.get(id(module))  # set at the end of __init__ only
    if type(asked) is bool:
        found["static_graph"] = asked
    return found


def _describe(role: str, fqn: str, tensor: Tensor) -> dict[str, object]:
    storage = tensor.untyped_storage()
    return {
        "fqn": fqn,
        "role": role,
        "addr": tensor.data_ptr(),
        "nbytes": tensor.numel() * tensor.element_size(),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "storage_addr": storage.data_ptr(),
        "storage_nbytes": storage.nbytes(),
    }


def _refresh(box: Core, hooks: TorchLibrary, module: DdpModule) -> None:
    wrapped = _wrapped.get(module)
    if wrapped is None:
        _write_layout(box, hooks, module, _note_module(box, module, made=False))  # wrapped before enable()
        return
    wrapped.looks += 1
    if wrapped.looks >= CLOSE_ITERATIONS:
        _forwards_to_skip[id(module)] = LATER_EVERY - 1
    _write_layout(box, hooks, module, wrapped)


def _write_layout(box: Core, hooks: TorchLibrary, module: DdpModule, wrapped: _Wrapped) -> None:
    if vars(module).get(_LATE):
        if wrapped.layout is None:
            wrapped.layout = ()
            why = f"with {_LATE} each backward allocates new ones"
            box.note(NoteCode.WRAPPER, f"{_BUCKETS} of {wrapped.name} are not followed: {why}", _BUCKETS)
        return
    buckets = hooks.buckets(module.reducer)
    if buckets == wrapped.layout:  # with its parameters: a new bucket may have the address and size of an old one
        return
    wrapped.layout = buckets
    wrapped.generation += 1
    box.journal(
        Entry.BUCKETS,
        {
            "module": wrapped.name,
            "generation": wrapped.generation,
            "has_rebuilt": wrapped.generation > 0,
            "buckets": [
                {
                    "index": index,
                    "addr": addr,
                    "nbytes": nbytes,
                    "parameters": [
                        {"fqn": wrapped.fqns.get(cdata, "?"), "offset_bytes": offset, "nbytes": size}
                        for cdata, offset, size in parameters
                    ],
                }
                for index, addr, nbytes, parameters in buckets
            ],
        },
    )
