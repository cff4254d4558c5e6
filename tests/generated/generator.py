"""Crashes with known cause: a seed makes a program, and what a report about it must hold.

error x origin of the memory x thread x way of access x launcher. `generate(seed)` is a pure function: the same seed is
the same program. What is right follows from what was built in, never from what pytracer said about it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

LAUNCHERS = ("preload", "enable", "run")
THREADS = (
    "main", "python-thread", "native-thread", "openmp-worker", "autograd", "dataloader-worker", "forked-child",
    "spawned-child",
)  # fmt: skip
_PYTHON_THREADS = tuple(name for name in THREADS if name not in ("native-thread", "openmp-worker"))
_WEIGHTS = {
    "spawned-child": 1,
    "dataloader-worker": 3,
    "run": 1,
    "enable": 4,
    "preload": 8,
}  # what takes longer is rarer

# How the line that dies touches `at`; of native code, which a plan can carry to threads without Python, by name.
READS = ("load", "load_field", "vector", "copy_out")
WRITES = ("store", "copy_in", "clear")
PYTHON_READS = ("from_address", "string_at")
PYTHON_WRITES = ("memmove", "memset")
_INDEXED = ("load_index", "store_index", "load_byte_index", "load_folded", "store_folded")
_GATHERED = ("gather", "scatter")
_UP = ("sum_up", "fill_up", "clear", "clear_by_string")
_DOWN = ("sum_down", "fill_down")
_ITEM = {"load_index": 8, "store_index": 4, "load_byte_index": 1, "load_folded": 4, "store_folded": 8}

TENSORS = (
    "empty", "zeros", "parameter", "view", "from_numpy", "shared_memory", "from_file", "memmap", "dlpack", "from_blob",
)  # fmt: skip
_OWNED = TENSORS[:7]  # whose memory goes with the tensor

_NAMES = ("x", "rows", "logits", "batch", "mask", "hidden", "scores", "tokens", "labels", "features")


@dataclass(frozen=True)
class Truth:
    """What was built in.

    `right`: the classes that name it. `defensible`: those that say less, or that the same recorded facts allow as well;
    they count neither as right nor as wrong, and neither does `unknown`. `storage`: True where only the storage that
    the program notes may be named, None where none may be, False where nobody can know. `line`: of the program's file;
    None on threads without Python. `thread`: its kind; None where a kernel shares its work with OpenMP's threads.
    """

    right: tuple[str, ...]
    line: int | None
    thread: str | None
    defensible: tuple[str, ...] = ()
    storage: bool | None = None


@dataclass(frozen=True)
class Program:
    """One program, and the values of its axes."""

    seed: int
    error: str
    origin: str
    thread: str
    way: str
    launcher: str
    source: str = field(repr=False)
    truth: Truth = field(repr=False)

    @property
    def axes(self) -> tuple[str, ...]:
        """Error, origin, thread, way, launcher."""
        return (self.error, self.origin, self.thread, self.way, self.launcher)

    def __str__(self) -> str:
        return f"{self.seed}-" + "-".join(self.axes)


@dataclass
class _Draft:
    """A program while it is drawn: what arrange() does, and the one line that dies."""

    random: random.Random
    name: str
    error: str = ""
    origin: str = "none"
    way: str = "none"
    thread: str = ""
    make: list[str] = field(default_factory=list)  # body of make(), which returns the tensor
    arrange: list[str] = field(default_factory=list)
    dies: str = ""
    native: bool = False  # `dies` is (function, at, count), and may be carried to threads without Python
    at: str = "at"
    count: str = "0"
    right: tuple[str, ...] = ()
    defensible: tuple[str, ...] = ()
    storage: bool | None = None
    threads: Sequence[str] = THREADS
    inside: bool | None = None
    launchers: Sequence[str] = LAUNCHERS

    def memory(self, origins: Sequence[str], large: bool | None = None) -> int:
        """Draws an origin and a size; `self.make` makes the tensor. The number of float elements."""
        draw = self.random
        self.origin = draw.choice(origins)
        if large is None:
            large = draw.random() < 0.5
        count = draw.randrange(11 << 20, 20 << 20, 64) if large else draw.randrange(16, 4096, 8)
        self.make = _MAKE[self.origin](count)
        return count

    def access(self, names: Sequence[str], count: str = "0", at: str = "at") -> None:
        """Draws the way of access."""
        self.way = self.random.choice(names)
        self.count, self.at = count, at
        python = _PYTHON_WAYS.get(self.way)
        self.native = python is None
        self.dies = python.format(at=at) if python else f"kit.lib.{self.way}({at}, {count})"


def _mapped(make: str) -> Callable[[int], list[str]]:
    return lambda count: [f"owner = kit.new_mapping({4 * count})", f"return kit.{make}(owner, {count})"]


_MAKE: dict[str, Callable[[int], list[str]]] = {
    "empty": lambda count: [f"return torch.empty({count})"],
    "zeros": lambda count: [f"return torch.zeros({count // 8}, 8)"],
    "parameter": lambda count: [
        "global net, optimizer",
        "net = torch.nn.Module()",
        f"net.weight = torch.nn.Parameter(torch.empty({count // 8}, 8))",
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)",
        "return net.weight.detach()",
    ],
    "view": lambda count: [f"return torch.empty(2, {count})[1]"],
    "from_numpy": lambda count: [f'return torch.from_numpy(numpy.empty({count}, dtype="float32"))'],
    "shared_memory": lambda count: [f"return torch.empty({count}).share_memory_()"],
    "from_file": lambda count: [f"return torch.from_file(kit.new_file({4 * count}), shared=True, size={count})"],
    "memmap": lambda count: [
        f'return torch.from_numpy(numpy.memmap(kit.new_file({4 * count}), dtype="float32", mode="r+"))'
    ],
    "dlpack": _mapped("from_dlpack"),
    "from_blob": _mapped("from_blob"),
}
_PYTHON_WAYS = {
    "from_address": "ctypes.c_int.from_address({at}).value",
    "string_at": "ctypes.string_at({at}, 64)",
    "memmove": "ctypes.memmove({at}, bytes(64), 64)",
    "memset": "ctypes.memset({at}, 0, 64)",
}


def _any_access(draft: _Draft, *, writes: bool = False, null: bool = False) -> None:
    names: tuple[str, ...] = WRITES + PYTHON_WRITES if writes else READS + WRITES + PYTHON_READS + PYTHON_WRITES
    if null:
        names = tuple(name for name in names if name != "string_at")  # of null it makes new memory
    draft.access(names, "64")


def _pointer_into(draft: _Draft, count: int) -> list[str]:
    """A tensor, its storage noted, and an address in it."""
    offset = draft.random.randrange(0, 4 * count - 4096, 64) if count > 1 << 20 else 0
    return [
        f"{draft.name} = make()",
        f"kit.about({draft.name})",
        f"at = {draft.name}.data_ptr() + {offset}",
    ]


# ---- errors: each fills a draft ----


def _use_after_free(draft: _Draft) -> None:
    count = draft.memory(_OWNED, large=True)
    release = [f"del {draft.name}"]
    if draft.origin == "parameter":
        release += ["global net, optimizer", "del net, optimizer"]
    draft.arrange = [*release[1:2], *_pointer_into(draft, count), release[0], *release[2:]]
    _any_access(draft)
    draft.right, draft.storage = ("use-after-free",), True


def _hole_taken(draft: _Draft) -> None:
    _use_after_free(draft)
    draft.arrange = [
        line if not line.startswith("at =") else f"at = {draft.name}.data_ptr() + 131072" for line in draft.arrange
    ]
    draft.arrange.append("kit.take_hole(at - 131072, 40 << 20)")


def _owner_unmapped(draft: _Draft) -> None:
    count = draft.memory(("dlpack", "from_blob", "memmap"), large=True)
    draft.arrange = [
        *_pointer_into(draft, count),
        f"kit.kept.append({draft.name})",
        f"kit.lib.unmap_memory({draft.name}.data_ptr() & -4096, {4 * count})",
    ]
    if draft.random.random() < 0.4:
        draft.way, draft.dies, draft.threads = "operator", "kit.kept[-1].sum()", _PYTHON_THREADS
    else:
        _any_access(draft)
    draft.right, draft.storage = ("use-after-free",), True


def _overrun(draft: _Draft, ways: Sequence[str]) -> None:
    origin = draft.random.random()
    if origin < 0.08:
        draft.origin, nbytes = "malloc", draft.random.randrange(64, 1 << 16, 16)
        draft.arrange = [
            "malloc = ctypes.CDLL(None).malloc",
            "malloc.restype = ctypes.c_void_p",
            f"at = malloc({nbytes})",
        ]
    else:
        draft.memory(TENSORS)
        draft.arrange = [
            f"{draft.name} = make()",
            f"kit.about({draft.name})",
            f"kit.kept.append({draft.name})",
            f"at = {draft.name}.data_ptr()",
        ]
        draft.storage = True
    draft.access(ways, str(1 << draft.random.randrange(36, 41)))
    draft.right = ("out-of-bounds",)
    if draft.origin == "malloc":  # a block of the heap is recorded nowhere
        draft.defensible = ("wild-pointer",)


def _overrun_up(draft: _Draft) -> None:
    if draft.random.random() < 0.05:
        draft.origin, draft.right, draft.defensible = (
            "stack-array",
            ("out-of-bounds",),
            ("wild-pointer", "stack-overflow"),
        )
        draft.arrange = ["at = 0"]
        draft.access(("sum_stack",), str(1 << 30))
        return
    _overrun(draft, _UP)


def _overrun_down(draft: _Draft) -> None:
    _overrun(draft, _DOWN)


def _indexed(draft: _Draft, indices: Callable[[], int], *, ways: Sequence[str] = _INDEXED + _GATHERED) -> None:
    count = draft.memory(TENSORS)
    way = draft.random.choice(ways)
    index = indices()
    draft.arrange = [
        f"{draft.name} = make()",
        f"kit.about({draft.name})",
        f"kit.kept.append({draft.name})",
        f"at = {draft.name}.data_ptr()",
    ]
    if way in _GATHERED:
        total = draft.random.randrange(2, 40)
        where = draft.random.randrange(total)
        values = [draft.random.randrange(min(count, 1 << 16)) for _ in range(total)]
        values[where] = index
        draft.arrange.append(f"kit.kept.append((torch.tensor({values}), torch.zeros({total})))")
        draft.dies = f"kit.lib.{way}(at, kit.kept[-1][0].data_ptr(), {total}, kit.kept[-1][1].data_ptr())"
        draft.way, draft.threads = way, _PYTHON_THREADS
    else:
        draft.access((way,), str(index))
    draft.right, draft.storage = ("out-of-bounds",), True


def _far(draft: _Draft) -> int:
    return draft.random.choice((-1, 1)) * draft.random.randrange(1 << 40, 1 << 43)


def _wrong_index(draft: _Draft) -> None:
    _indexed(draft, lambda: _far(draft))


def _non_canonical_index(draft: _Draft) -> None:
    _indexed(draft, lambda: draft.random.choice((-1, 1)) * draft.random.randrange(1 << 50, 1 << 59))


def _wrong_index_of_operator(draft: _Draft) -> None:
    draw, name = draft.random, draft.name
    draft.origin, draft.way, draft.threads = "empty", "operator", _PYTHON_THREADS
    channels = draw.randrange(2, 9)
    which = draw.choice(("max_pool", "nll_loss", "coo"))
    if which == "max_pool":
        index = draw.choice((-1, 1)) * draw.randrange(1 << 38, 1 << 42)
        draft.arrange = [
            f"kit.kept.append(torch.full((2, {channels}, 4, 4), 1.0))",
            f"kit.kept.append(torch.full((2, {channels}, 16, 16), 1.0))",
            f"kit.kept.append(torch.full((2, {channels}, 4, 4), {index}, dtype=torch.long))",
        ]
        draft.dies = "torch.ops.aten.adaptive_max_pool2d_backward(*kit.kept)"
    elif which == "nll_loss":
        target = draw.randrange(1 << 34, 1 << 38)
        draft.arrange = [
            f"kit.kept.append(torch.ones(1, {channels}, {channels}))",
            f"kit.kept.append(torch.randn(1, 3, {channels}, {channels}))",
            f"kit.kept.append(torch.full((1, {channels}, {channels}), {target}))",
        ]
        draft.dies = "torch.ops.aten.nll_loss2d_backward(*kit.kept, None, 0, -100, torch.tensor(1.0))"
    else:
        index = draw.choice((-1, 1)) * draw.randrange(1 << 38, 1 << 61)
        draft.arrange = [
            f"{name} = torch.tensor([[{index}]])",
            f"sizes = {name}, torch.tensor([1.0]), ({channels},)",
            "kit.kept.append(torch.sparse_coo_tensor(*sizes, check_invariants=False))",
        ]
        draft.dies = "kit.kept[-1].to_dense()"
    draft.right, draft.storage = ("out-of-bounds",), False


def _null_index(draft: _Draft) -> None:
    way = draft.random.choice(_INDEXED)
    index = draft.random.randrange(1, (60 << 10) // _ITEM[way])
    draft.arrange = ["at = None"]
    draft.access((way,), str(index))
    draft.right = ("null-dereference",)
    if way.endswith("folded") or way == "load_byte_index":  # compiled to a sum and an access without an index
        draft.defensible = ("wild-pointer",)


def _null_far_index(draft: _Draft) -> None:
    way = draft.random.choice(_INDEXED[:2])
    draft.arrange = ["at = None"]
    draft.access((way,), str(draft.random.randrange(1 << 14, 1 << 20) * 8 // _ITEM[way]))
    draft.right = ("null-dereference",)


def _null(draft: _Draft) -> None:
    draft.arrange = ["at = None"]
    _any_access(draft, null=True)
    if draft.way == "from_address":
        draft.dies = "ctypes.c_int.from_address(at or 0).value"
    draft.right = ("null-dereference",)


def _empty_tensor(draft: _Draft) -> None:
    draft.origin = draft.random.choice(("empty", "zeros", "from_numpy"))
    draft.make = _MAKE[draft.origin](0) if draft.origin != "zeros" else ["return torch.zeros(0, 8)"]
    draft.arrange = [f"{draft.name} = make()", f"kit.kept.append({draft.name})", f"at = {draft.name}.data_ptr()"]
    _any_access(draft, null=True)
    draft.right = ("null-dereference",)


def _resized_to_zero(draft: _Draft) -> None:
    draft.memory(("empty", "zeros", "parameter", "view"), large=False)
    draft.arrange = [
        f"{draft.name} = make()",
        f"{draft.name}.untyped_storage().resize_(0)",
        f"kit.kept.append({draft.name})",
    ]
    if draft.random.random() < 0.5 and draft.origin != "view":
        draft.way, draft.threads = "operator", _PYTHON_THREADS
        draft.dies = draft.random.choice(("kit.kept[-1].sum()", "kit.kept[-1].neg()", "kit.kept[-1].clone()"))
    else:
        draft.arrange.append(f"at = {draft.name}.untyped_storage().data_ptr()")
        _any_access(draft, null=True)
    draft.right = ("null-dereference",)


def _misaligned(draft: _Draft) -> None:
    count = draft.memory(TENSORS)
    offset = draft.random.choice((1, 2, 4, 6, 8, 12))
    draft.arrange = [
        *_pointer_into(draft, count),
        f"at += {offset}",
        f"kit.kept.append({draft.name})",
    ]
    draft.access(("vector_aligned", "vector_store_aligned"))
    draft.right, draft.storage = ("misaligned-access",), True


def _garbage(draft: _Draft) -> None:
    draft.arrange = [f"at = kit.unmapped_address({draft.random.randrange(1 << 30)})"]
    _any_access(draft)
    draft.right = ("wild-pointer",)


def _garbage_non_canonical(draft: _Draft) -> None:
    draft.arrange = [f"at = {draft.random.randrange(1 << 50, (1 << 63) - 1):#x}"]
    _any_access(draft)
    draft.right = ("wild-pointer",)


def _cut_off_pointer(draft: _Draft) -> None:
    """Without argtypes ctypes passes 32 bits of an address."""
    count = draft.memory(TENSORS)
    sign = draft.random.choice(("", " - (1 << 32)"))
    draft.arrange = [
        *_pointer_into(draft, count),
        f"kit.kept.append({draft.name})",
        f"at = ((at & 0xFFFFFFFF) | 0x80000000){sign}" if sign else "at = (at & 0x7FFFFFFF) | 0x10000000",
    ]
    _any_access(draft)
    draft.right = ("wild-pointer",)


def _write_to_read_only(draft: _Draft) -> None:
    draw = draft.random
    if draw.random() < 0.4:
        count = draw.randrange(1 << 12, 1 << 20)
        draft.origin = "memmap"
        draft.make = [
            "warnings.simplefilter('ignore')",
            f'return torch.from_numpy(numpy.memmap(kit.new_file({4 * count}), dtype="float32", mode="r"))',
        ]
        draft.arrange = [
            f"{draft.name} = make()",
            f"kit.about({draft.name})",
            f"kit.kept.append({draft.name})",
            f"at = {draft.name}.data_ptr()",
        ]
        if draw.random() < 0.4:
            draft.way, draft.threads, draft.dies = "operator", _PYTHON_THREADS, "kit.kept[-1].div_(255.0)"
    else:
        count = draft.memory(TENSORS, large=True)
        draft.arrange = [
            *_pointer_into(draft, count),
            f"kit.kept.append({draft.name})",
            "kit.lib.protect_memory(at & -4096, 8192, 1)",
        ]
    if not draft.dies:
        _any_access(draft, writes=True)
    draft.right, draft.storage = ("read-only-write",), True


def _no_access(draft: _Draft) -> None:
    count = draft.memory(TENSORS, large=True)
    draft.arrange = [
        *_pointer_into(draft, count),
        f"kit.kept.append({draft.name})",
        "kit.lib.protect_memory(at & -4096, 8192, 0)",
    ]
    _any_access(draft)
    draft.right, draft.storage = ("misaligned-access",), True


def _truncated_file(draft: _Draft) -> None:
    draw = draft.random
    count = draw.randrange(1 << 14, 1 << 20, 1 << 10)
    draft.origin = draw.choice(("from_file", "memmap"))
    made = (
        f"torch.from_file(path, shared=True, size={count})"
        if draft.origin == "from_file"
        else 'torch.from_numpy(numpy.memmap(path, dtype="float32", mode="r+"))'
    )
    draft.arrange = [
        f"path = kit.new_file({4 * count})",
        f"{draft.name} = {made}",
        f"kit.about({draft.name})",
        f"kit.kept.append({draft.name})",
        f"os.truncate(path, {draw.randrange(0, 3 * count, 1000)})",
        f"at = {draft.name}.data_ptr() + {4 * count - 4096}",
    ]
    if draw.random() < 0.3:
        draft.way, draft.threads, draft.dies = "operator", _PYTHON_THREADS, "kit.kept[-1].sum()"
    else:
        _any_access(draft)
    draft.right, draft.storage = ("truncated-mapping",), True


def _claims_too_much(draft: _Draft) -> None:
    """A tensor over memory that has fewer bytes than its sizes say."""
    draw = draft.random
    count = draw.randrange(1 << 10, 1 << 16)
    draft.origin = draw.choice(("dlpack", "from_blob", "from_numpy"))
    if draft.origin == "from_numpy":
        draft.make = [
            f'array = numpy.zeros({count}, dtype="float32")',
            f"return torch.from_numpy(numpy.lib.stride_tricks.as_strided(array, ({count << 14},), (4,)))",
        ]
    else:
        make = {"dlpack": "from_dlpack", "from_blob": "from_blob"}[draft.origin]
        draft.make = [f"owner = kit.new_mapping({4 * count})", f"return kit.{make}(owner, {count << 14})"]
    draft.arrange = [f"{draft.name} = make()", f"kit.about({draft.name})", f"kit.kept.append({draft.name})"]
    if draw.random() < 0.5:
        draft.way, draft.threads = "operator", _PYTHON_THREADS
        draft.dies = draw.choice(("kit.kept[-1].sum()", "kit.kept[-1].max()"))
    else:
        draft.arrange.append(f"at = {draft.name}.data_ptr()")
        draft.access(("sum_up",), str(count << 14))
    draft.right, draft.storage = ("out-of-bounds",), True


def _heap(draft: _Draft) -> None:
    draft.arrange = ["at = 0"]
    count = str(draft.random.randrange(24, 900, 8))
    draft.access(("free_twice", "free_inside", "overflow_block", "free_foreign"), count)
    if draft.way == "free_foreign":
        draft.memory(("empty", "zeros", "parameter", "view"), large=False)
        draft.arrange = [
            f"{draft.name} = make()",
            f"kit.kept.append({draft.name})",
            f"at = {draft.name}.data_ptr() + 32",
        ]
        draft.access(("free_foreign",))
    draft.right = ("heap-corruption",)


def _stack_overflow(draft: _Draft) -> None:
    if draft.random.random() < 0.3:
        draft.arrange = [
            "sys.setrecursionlimit(10**9)",
            "global again",
            "again = kit.CALLBACK(lambda depth: kit.lib.call_back(again, depth))  # dies",
        ]
        draft.way, draft.threads = "python-recursion", _PYTHON_THREADS
        draft.dies = "kit.lib.call_back(again, 0)"
    else:
        draft.arrange = ["kit.kept.append(ctypes.create_string_buffer(8))", "at = ctypes.addressof(kit.kept[-1])"]
        draft.access(("recurse",))
    draft.right = ("stack-overflow",)


def _jump(draft: _Draft) -> None:
    draw = draft.random
    which = draw.choice(("null", "data", "garbage", "return"))
    draft.right = ("wild-pointer",)
    if which == "null":
        draft.arrange, draft.right = ["at = None"], ("null-dereference",)
    elif which == "data":
        draft.memory(TENSORS[:6])
        draft.arrange = [f"{draft.name} = make()", f"kit.kept.append({draft.name})", f"at = {draft.name}.data_ptr()"]
    elif which == "garbage":
        draft.arrange = [f"at = kit.unmapped_address({draw.randrange(1 << 30)})"]
    else:
        draft.arrange = ["at = 0"]
        draft.access(("smash_return",), str(draw.randrange(32, 96)))
        return
    draft.access(("call_pointer",))
    draft.way = f"call-{which}"


def _abort(draft: _Draft) -> None:
    draft.arrange = ["at = 0"]
    draft.access(("call_abort", "fail_assertion", "leave_exception"), str(draft.random.randrange(1, 900)))
    draft.right = ("abort",)


def _instruction(draft: _Draft) -> None:
    draft.arrange = ["at = 0"]
    draft.access(("undefined_instruction", "divide"), str(draft.random.randrange(1, 900)))
    draft.right = ("illegal-instruction",) if draft.way == "undefined_instruction" else ("arithmetic",)


def _exception(draft: _Draft) -> None:
    kind = draft.random.choice(("ValueError", "KeyError", "RuntimeError", "AssertionError", "OSError"))
    draft.arrange = ["at = 0"]
    draft.way, draft.dies, draft.threads = (
        "raise",
        f'raise {kind}("step {draft.random.randrange(99999)}")',
        ("main", "autograd"),
    )
    draft.right = ("python-exception",)
    draft.defensible = ("clean",)  # a child's, whose parent reaped it and went on; the summary names it


def _exit(draft: _Draft) -> None:
    status = draft.random.randrange(1, 120)
    draft.arrange = ["at = 0"]
    draft.way = draft.random.choice(("sys.exit", "os._exit"))
    draft.dies, draft.threads = f"{draft.way}({status})", ("main", "autograd") if draft.way == "os._exit" else ("main",)
    draft.right = ("exit",)


def _killed(draft: _Draft) -> None:
    draft.arrange = ["at = 0"]
    number = draft.random.choice((9, 15, 11, 1))
    draft.way = f"signal-{number}"
    draft.dies, draft.threads = f"kit.be_killed({number})", ("main",)
    draft.right = ("external-kill",)


ERRORS: dict[str, tuple[int, Callable[[_Draft], None]]] = {
    "use-after-free": (10, _use_after_free),
    "hole-taken": (4, _hole_taken),
    "owner-unmapped": (5, _owner_unmapped),
    "overrun-up": (9, _overrun_up),
    "overrun-down": (6, _overrun_down),
    "wrong-index": (10, _wrong_index),
    "non-canonical-index": (5, _non_canonical_index),
    "wrong-index-of-operator": (4, _wrong_index_of_operator),
    "null": (3, _null),
    "null-index": (4, _null_index),
    "null-far-index": (3, _null_far_index),
    "empty-tensor": (4, _empty_tensor),
    "resized-to-zero": (4, _resized_to_zero),
    "misaligned": (4, _misaligned),
    "garbage": (4, _garbage),
    "garbage-non-canonical": (3, _garbage_non_canonical),
    "cut-off-pointer": (3, _cut_off_pointer),
    "write-to-read-only": (5, _write_to_read_only),
    "no-access": (3, _no_access),
    "truncated-file": (4, _truncated_file),
    "claims-too-much": (5, _claims_too_much),
    "heap": (4, _heap),
    "stack-overflow": (3, _stack_overflow),
    "jump": (4, _jump),
    "abort": (3, _abort),
    "instruction": (2, _instruction),
    "exception": (2, _exception),
    "exit": (2, _exit),
    "killed": (2, _killed),
}


def generate(seed: int) -> Program:
    """The program of a seed."""
    draw = random.Random(seed)
    error = draw.choices(list(ERRORS), [weight for weight, _ in ERRORS.values()])[0]
    draft = _Draft(draw, draw.choice(_NAMES), error)
    ERRORS[error][1](draft)
    threads = draft.threads if draft.native else [name for name in draft.threads if name in _PYTHON_THREADS]
    draft.thread = draw.choices(threads, [_WEIGHTS.get(name, 8) for name in threads])[0]
    launcher = draw.choices(draft.launchers, [_WEIGHTS[name] for name in draft.launchers])[0]
    lines = list(_lines(draft, seed, launcher))
    dies = next(number for number, line in enumerate(lines, 1) if line.endswith("# dies"))
    native = draft.thread in ("native-thread", "openmp-worker")
    defensible = draft.defensible
    if draft.origin == "from_blob" and launcher == "enable" and draft.storage:
        # Of a library loaded after enable() from_blob() is not recorded; docs/reference/hooks.md says so.
        defensible, draft.storage = (*defensible, "wild-pointer"), False
    kind = None if draft.way == "operator" else _KINDS[draft.thread]  # a kernel shares its work with OpenMP's threads
    truth = Truth(draft.right, None if native else dies, kind, defensible, draft.storage)
    source = "\n".join(lines) + "\n"
    return Program(seed, error, draft.origin, draft.thread, draft.way, launcher, source, truth)


_KINDS = {"native-thread": "native", "openmp-worker": "openmp", "python-thread": "python"} | dict.fromkeys(
    ("main", "autograd", "dataloader-worker", "forked-child", "spawned-child"), "main"
)
_GO = {"native-thread": "kit.lib.go_on_native_thread()", "openmp-worker": "kit.lib.go_on_openmp_worker()"}


def _lines(draft: _Draft, seed: int, launcher: str) -> Iterator[str]:
    yield f'"""Generated from seed {seed}: {draft.error}, {draft.origin}, {draft.thread}, {draft.way}, {launcher}."""'
    yield ""
    yield "import ctypes, os, sys, warnings"
    yield "import kit, numpy, torch"
    yield ""
    yield "kit.begin()"
    if draft.make:
        yield "def make():"
        yield from (f"    {line}" for line in draft.make)
    yield "def arrange():"
    yield "    global at"
    yield from (f"    {line}" for line in draft.arrange)
    go = _GO.get(draft.thread)
    if go is not None:
        yield f"    kit.lib.plan_access(kit.lib.{_native_way(draft)}, {draft.at}, {draft.count})"
    yield "def touch():"
    marked = draft.way == "python-recursion"  # the innermost line is the one that recurs
    yield f"    {go or draft.dies}{'' if marked else '  # dies'}"
    yield 'if __name__ == "__main__":'
    inside = draft.random.random() < 0.5
    yield f'    kit.die("{draft.thread}", arrange, touch, {inside})'


def _native_way(draft: _Draft) -> str:
    return draft.dies.removeprefix("kit.lib.").partition("(")[0]


def distinct(seeds: Iterable[int]) -> Iterator[Program]:
    """The programs of the seeds; one that was there before under another seed is left out."""
    known = set()
    for seed in seeds:
        program = generate(seed)
        body = program.source.partition("\n")[2]
        if body not in known:
            known.add(body)
            yield program


def sample(programs: Sequence[Program], count: int) -> list[Program]:
    """The few programs in which most pairs of values of two axes occur, and those first that occur nowhere else."""
    left = {program: _pairs(program) for program in programs}
    taken: list[Program] = []
    missing: set[Pair] = set().union(*left.values())
    alone = {(axis, value) for program in programs for axis, value in enumerate(program.axes)}
    while len(taken) < count:
        best = max(left, key=lambda program: (len(alone & set(enumerate(program.axes))), len(left[program] & missing)))
        missing -= left.pop(best)
        alone -= set(enumerate(best.axes))
        taken.append(best)
    return taken


Pair = tuple[int, str, int, str]


def _pairs(program: Program) -> set[Pair]:
    return {(i, a, j, b) for (i, a), (j, b) in combinations(enumerate(program.axes), 2)}
