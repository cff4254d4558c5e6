"""An illegal or misaligned access with one suspect that is not torch's: Triton's, CuPy's, an extension's operator.

Torch's operators use what lies inside of their operands, and those that are given indices end by an assertion instead.
So a launch of theirs explains no such access as long as its operands lived, apart from a few that trust offsets or
lengths. Nothing is concluded if another kernel of the kind may have run: one of the dropped records, of a CUDA graph,
of another library, or a collective's.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import hex_addr, list_words, size_words
from pytracer.analyze.address_space.device_memory import made_words
from pytracer.analyze.evidence.cuda.cuda_errors import CudaError
from pytracer.analyze.evidence.cuda.given import code_words
from pytracer.analyze.evidence.cuda.launches import Launch, Pending, pending_launches
from pytracer.analyze.evidence.cuda.unrecorded_kernels import may_launch_unrecorded
from pytracer.analyze.evidence.cuda.xid import FAULT, Xid
from pytracer.analyze.evidence.syntax.calls import passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence, PythonFrame

WIDEST = 16  # bytes that a thread of most devices accesses at once at most: float4
_MOST_RECORDED, _NAMED = 5, 4  # storages of a record; names in a sentence
_MISALIGNED = "misaligned address"
_ATEN = ("aten::", "prims::")
_COMPILED = "triton::triton_"  # inductor's, made of torch's operators
# Other operators that come with torch or its packages, of which it is not known what they check.
_OTHERS = (
    "_c10d", "c10d", "cuda::", "fbgemm", "inductor", "mkldnn", "quantized", "symm_mem", "torchaudio", "torchvision",
)  # fmt: skip
# Of torch's, by the beginning of their names: they trust offsets, lengths or indices that they are given.
_TRUSTING = (
    "_coalesce", "_cslt", "_ctc_loss", "_cudnn_attention", "_cudnn_ctc", "_efficient_attention", "_embedding_bag",
    "_flash_attention", "_grouped_mm", "_jagged", "_nested", "_padded_dense", "_scaled_grouped_mm", "_segment_reduce",
    "_sparse", "_unsafe_masked", "as_strided", "coalesce", "ctc_loss", "embedding_bag", "searchsorted",
    "segment_reduce", "set_", "sparse_",
)  # fmt: skip


class OwnKernel(msgspec.Struct, frozen=True):
    """The one call site. `launch`: of its launches the likeliest; `lines`: how many lines are suspects."""

    launch: Launch
    at: PythonFrame
    lines: int
    misaligned: tuple[int, ...] = ()
    """Addresses that it was given, inside of blocks, that are no multiples of 16."""

    @property
    def reason(self) -> str:
        """Behind the name in the headline."""
        return f"of the {self.lines} lines that may have launched it, the only one with a kernel that is not torch's"


def own_kernel(view: ProcessView, error: CudaError, lines: int) -> OwnKernel | None:
    """The one kernel that is not torch's of those not known to be over, `lines`: of how many lines."""
    misaligned = error.text.startswith(_MISALIGNED)
    if lines < 2 or not (misaligned or error.is_illegal_access):
        return None
    pending = pending_launches(view)
    own = [item for item in pending.launches if not item.name.startswith(_ATEN)]
    sites = {(item.name, item.python and (item.python.file, item.python.line), item.node) for item in own}
    at = own[0].python if len(sites) == 1 else None
    if at is None or is_library_file(at.file) or own[0].name.startswith((_COMPILED, *_OTHERS)):
        return None
    if not _all_is_known(view, pending) or not all(_stays_inside(view, item) for item in pending.launches):
        return None
    given = [(item, tuple(addr for addr in item.storages if addr % WIDEST)) for item in own]
    launch, odd = next((pair for pair in given if pair[1] and misaligned), (own[-1], ()))
    return OwnKernel(launch, at, lines, odd)


def _all_is_known(view: ProcessView, pending: Pending) -> bool:
    """Whether there is no other work that may have failed."""
    snapshot = view.process.snapshot
    if snapshot.cuda_graphs or view.collectives or not snapshot.segments:
        return False
    if not all(pending.is_complete(item) for item in pending.launches):
        return False
    frames = [item.python for item in pending.launches if item.python is not None]
    files = {frame.file: frame for frame in (*frames, *view.exception_stack_of_program)}
    return not may_launch_unrecorded(view, [*files.values()])


def _stays_inside(view: ProcessView, launch: Launch) -> bool:
    """Whether a launch of torch's has operands that lived, and trusts none of them; of others it isn't asked."""
    if not launch.name.startswith(_ATEN):
        return True
    if launch.without_memory or launch.operator.startswith(_TRUSTING):
        return False
    return all(_lived(view, launch, addr) for addr in launch.storages)


def _lived(view: ProcessView, launch: Launch, addr: int) -> bool:
    """False for memory that had certainly been freed, and for what torch's allocator does not know."""
    place = view.space.describe(addr)
    if place.storage is None:
        return place.segment is not None and place.segment.live
    freed = place.storage.freed
    return freed is None or freed.ended_ns is None or freed.ended_ns > launch.mono_ns


def own_evidence(found: OwnKernel | None, error: CudaError) -> Evidence | None:
    """Why it is likelier than the others."""
    if found is None:
        return None
    others = "torch's operators choose the width of their accesses by the alignment of their operands"
    if error.is_illegal_access:
        others = (
            "torch's operators stay inside of their operands, which had not been freed, and those with indices end by "
            "an assertion instead"
        )
    words = f"of these, {found.launch.name} alone is not torch's: {others}"
    return Evidence("cuda-launch", words, python=found.at, count=found.lines)


def own_advice(view: ProcessView, found: OwnKernel, error: CudaError, xids: Sequence[Xid]) -> str:
    """What to look at in that call, and how to be sure."""
    at = f"{place_words(found.at)}{code_words(view, found.launch)}"
    sure = "`pytracer run --gpu-core` shows whether it was this kernel, and the access."
    if not error.is_illegal_access:
        return f"{_aligned_advice(view, found, at)} {sure}"
    outside = _outside_words(view, found, xids)
    look = f"Look at the indices and strides that {found.launch.name} uses at {at}"
    if not outside:
        look += ", the bounds that its mask or condition checks, and whether the memory that it is given still lives"
    return f"{look}{outside}. {sure}"


def _passed(view: ProcessView, found: OwnKernel) -> list[str]:
    """The tensors' names, if the call of that line passes as many variables as tensors were recorded."""
    tree, storages = syntax_tree(view.process.snapshot, found.at), found.launch.storages
    nodes = nodes_of(tree) if tree is not None and len(storages) < _MOST_RECORDED else ()
    calls = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    here = [call for call in calls if call.lineno <= (found.at.line or 0) <= (call.end_lineno or 0)]
    given = passed_values(here[-1]) if here else []
    names = [ast.unparse(item) for item in given if isinstance(item, (ast.Name, ast.Attribute))]
    names = [name for name in names if not name.rpartition(".")[2].isupper()]
    return names if len(names) == len(storages) else []


def _aligned_advice(view: ProcessView, found: OwnKernel, at: str) -> str:
    told = [words for addr in dict.fromkeys(found.misaligned) if (words := _odd_words(view, addr))]
    if not told:
        return (
            f"Look at the addresses that {found.launch.name} is given at {at}: `x.data_ptr() % 16` of a view or slice "
            "need not be 0, and an access of 16 bytes at once, such as float4, needs that."
        )
    return (
        f"{found.launch.name} at {at} was given {told[0]}. If it accesses {WIDEST} bytes at once there, such as by "
        f"float4, let each view begin at a multiple of {WIDEST} bytes, or access single elements."
    )


def _odd_words(view: ProcessView, addr: int) -> str | None:
    """`an address 11048 bytes into a block of 11.0 KiB, allocated at sgd.py:34, a multiple of 8 but not of 16`."""
    place = view.space.describe(addr)
    storage = place.storage
    if storage is None or storage.device == "cpu":
        return None
    what = place.names[0] if place.names else f"a block of {size_words(storage.nbytes)}"
    inside = f"{hex_addr(addr)}, {place.offset_bytes} bytes into {what}{made_words(storage)}"
    return f"{inside}: a multiple of {addr & -addr}, but not of {WIDEST}"


def _outside_words(view: ProcessView, found: OwnKernel, xids: Sequence[Xid]) -> str:
    """Where the address of Xid 31 lies, seen from all that was given, and what leads there.

    Empty if it isn't known, or among that memory.
    """
    addr = next((xid.address for xid in xids if xid.own and xid.number == FAULT and xid.address), None)
    blocks = [view.space.describe(item).storage for item in found.launch.storages]
    known = [item for item in blocks if item is not None and item.device != "cpu"]
    if addr is None or not known or len(known) < len(blocks) or len(blocks) >= _MOST_RECORDED:
        return ""
    before, behind = min(item.base for item in known), max(item.base + item.nbytes for item in known)
    told = f": {hex_addr(addr)}, the address of Xid 31, lies"
    if addr < before:
        why = "An index may be negative, or an offset computed in 32 bits, which is negative from 2**31 on"
        return f"{told} {size_words(before - addr)} before all memory that it was given. {why}"
    if addr < behind:
        return ""
    told += f" {size_words(addr - behind)} behind all memory that it was given"
    if addr - behind <= max(item.nbytes for item in known):
        return f"{told}. Its grid may be larger than its memory, without a check of the bounds, or a stride too large"
    names = list_words([f"`{name}`" for name in _passed(view, found)], _NAMED)
    which = f"One of {names}" if " and " in names else names or "A tensor"
    return f"{told}. {which} may hold values that are no valid indices, such as padding, or a stride be in bytes"
