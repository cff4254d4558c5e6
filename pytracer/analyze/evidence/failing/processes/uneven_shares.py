"""A tensor whose rows the ranks cannot share evenly: reduce_scatter_tensor(), all_gather_into_tensor() of a part."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import Shape
from pytracer.analyze.evidence.failing.tensors.result_shapes import Shapes
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value

_MESSAGE = Pattern(
    r"outputShape\[0\] \* worldSize == inputShape\[0\]|world.size times|same size as output size times world size"
    r"|divide equally across group size"
)
_WHOLE = {"reduce_scatter_tensor": 1, "_reduce_scatter_base": 1, "all_gather_into_tensor": 0, "_all_gather_base": 0}
_PARTS = ("output", "input")
_NAMES = {  # of their parameters
    "reduce_scatter_tensor": ("output", "input"),
    "all_gather_into_tensor": ("output_tensor", "input_tensor"),
}
_PRODUCT = Pattern(r"\((\d+) vs\. \d+\)")
_BEFORE_GROUP = 2  # arguments
_LEAST = 17  # a smaller number may be that of anything


class _Share(msgspec.Struct, frozen=True):
    """`rows` of `whole`, and `part` rows of each of `ranks` ranks."""

    whole: str
    shape: Shape
    rows: int
    part: int
    ranks: int

    @property
    def words(self) -> str:
        """For the headline, too."""
        short = f"{self.ranks} * {self.part} = {self.ranks * self.part}"
        return (
            f"`{self.whole}` {self.shape.words} has {self.rows} rows, which {self.ranks} ranks cannot share evenly "
            f"({short})"
        )


def uneven_share(at: FailingLine) -> str | None:
    """None where the sizes do not fit for another reason than a rest."""
    share = _share(at)
    if share is None:
        return None
    named = _size_in_caller(at, share.rows)
    by = f" ({named} is {share.rows}, too)" if named is not None else ""
    more = -(-share.rows // share.ranks) * share.ranks
    return (
        f"{share.words}. Make that dimension a multiple of the number of ranks where the tensor is made{by}, as {more} "
        f"is; or pad it with zeros to {more} rows before line {at.line}, and cut the rest behind it."
    )


def uneven_subject(at: FailingLine) -> str | None:
    """What the headline says."""
    share = _share(at)
    return share.words if share is not None else None


def _share(at: FailingLine) -> _Share | None:
    call = at.only(ast.Call)
    name = called_name(call) if call is not None else None
    if _MESSAGE.search(at.message) is None or call is None or name not in _WHOLE:
        return None
    given = [argument_at(call, n, _NAMES.get(name, _PARTS)[n]) for n in (0, 1)]
    whole, part = given[_WHOLE[name]], given[1 - _WHOLE[name]]
    large, small = _rows(at, whole), _rows(at, part)
    if whole is None or large is None or small is None or not small.sizes[0]:
        return None
    rows, own = large.sizes[0], small.sizes[0]
    ranks = rows // own
    if rows % own == 0 or ranks < 2 or rows // ranks != own or not _is_shared_by(at, call, ranks, own):
        return None
    return _Share(source(_base(whole)), large, rows, own, ranks)


def _is_shared_by(at: FailingLine, call: ast.Call, ranks: int, own: int) -> bool:
    """Whether the group has so many: by the product in gloo's message, or by the job where no group is passed."""
    product = _PRODUCT.search(at.message)
    if product is not None:
        return int(product[1]) == ranks * own
    alone = keyword_value(call, "group") is None and len(call.args) <= _BEFORE_GROUP
    return alone and at.snapshot.rank is not None and at.snapshot.rank.world_size == ranks


def _rows(at: FailingLine, node: ast.expr | None) -> Shape | None:
    """The recorded shape; of `p.grad` and `p.data` that of `p`."""
    if node is None:
        return None
    base = _base(node)
    inner = base.value if isinstance(base, ast.Attribute) and base.attr in ("grad", "data") else base
    found = at.shape(base) or at.shape(inner) or Shapes(at).of(base)
    return found if found is not None and found.sizes else None


def _base(node: ast.expr) -> ast.expr:
    """`p.grad` of `p.grad.contiguous()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in ("contiguous", "detach", "float", "half", "bfloat16", "clone", "to"):
            break
        node = node.func.value
    return node


def _size_in_caller(at: FailingLine, rows: int) -> str | None:
    """`` `vocab_size` in main() ``, the only variable of the frames around that has that number."""
    found = {
        (name, at.frames[depth].function or "")
        for depth in range(1, len(at.frames))
        for name, value in at.values_at(depth).items()
        if value == str(rows)
    }
    if rows < _LEAST or len(found) != 1:
        return None
    ((name, function),) = found
    place = f" in {function.rpartition('.')[2]}()" if function and not function.startswith("<") else ""
    return f"`{name}`{place}"
