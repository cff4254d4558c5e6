"""The state of one kind of optimizer that another kind was given: by the options that only the first one has."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values

_OPTIM = "/torch/optim/"
_LIKE_ADAM = "Adam or one like it"
# Options that load_state_dict() takes over from the saved groups, of one kind only (torch 2.13, torch/optim/*.py).
_OPTIONS = (
    (("dampening", "nesterov"), "SGD"),
    (("momentum_decay",), "NAdam"),
    (("alpha", "centered"), "RMSprop"),
    (("lr_decay", "initial_accumulator_value"), "Adagrad"),
    (("rho",), "Adadelta"),
    (("etas",), "Rprop"),
    (("lambd",), "ASGD"),
    (("history_size",), "LBFGS"),
    (("betas",), _LIKE_ADAM),
)
_KINDS = {
    "adadelta": "Adadelta",
    "adagrad": "Adagrad",
    "adam": "Adam or AdamW",
    "adamax": "Adamax",
    "adamw": "AdamW",
    "asgd": "ASGD",
    "nadam": "NAdam",
    "radam": "RAdam",
    "rmsprop": "RMSprop",
    "rprop": "Rprop",
    "sgd": "SGD",
}
# What those that know Adam's moments keep of each parameter (torch 2.13, torch/optim/adam*.py, nadam.py, radam.py).
_OF_MOMENTS = {
    "Adam or AdamW": ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
    "AdamW": ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
    "Adamax": ("step", "exp_avg", "exp_inf"),
    "NAdam": ("step", "exp_avg", "exp_avg_sq", "mu_product"),
    "RAdam": ("step", "exp_avg", "exp_avg_sq"),
}


def other_optimizer(at: FailingLine) -> str | None:
    """Where load_state_dict() of an optimizer failed on a key that its own states have."""
    inner = at.stack[0].file or ""
    if at.kind != "KeyError" or at.own or _OPTIM not in inner:
        return None
    loads = any((item.function or "").rpartition(".")[2] == "load_state_dict" for item in at.stack)
    call, wrote = at.only(ast.Call), writer(at)
    reader = _KINDS.get(inner.rpartition("/")[2].partition(".")[0])
    if not loads or call is None or reader is None:
        return None
    if called_name(call) != "load_state_dict" or not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
        return None
    owner, key, given = source(call.func.value), at.message.strip(), source(passed_values(call)[0])
    kept = ", ".join(_kept(at))
    change = (
        "Resume with the kind of optimizer that was saved; or load only the weights of the model: without line "
        f"{at.line}, `{owner}` begins anew."
    )
    if wrote is not None and not _may_be(wrote, reader):
        keeps = f": that keeps {kept}" if kept else ""
        return (
            f"`{given}` is the state of {wrote}, and `{owner}`{at.came(owner)}, an {reader}, needs {key} of each "
            f"parameter{keeps}. {change}"
        )
    if not kept:
        return None
    if _lost_some(at, reader, wrote, key):
        return (
            f"`{given}` keeps {kept} of each parameter, as {reader} does, and lacks {key}, which state_dict() of an "
            f"optimizer has: something leaves it out where the state is saved, changed or loaded (a filter or a "
            f"conversion of its values). Keep {key} there, or save `{owner}.state_dict()` as it is; without line "
            f"{at.line}, `{owner}` begins anew."
        )
    return (
        f"`{given}` keeps {kept} of each parameter, and `{owner}`{at.came(owner)} needs {key}: another kind of "
        f"optimizer wrote it, or another version. {change}"
    )


def _lost_some(at: FailingLine, reader: str, wrote: str | None, key: str) -> bool:
    """Whether all that is kept is the reader's own, its moments too, and groups of such an optimizer came with it."""
    own = [f"'{item}'" for item in _OF_MOMENTS.get(reader, ())]
    kept = [*_kept(at)]
    return wrote == _LIKE_ADAM and key in own and "'exp_avg'" in kept and all(item in own for item in kept)


def _may_be(wrote: str, reader: str) -> bool:
    """Whether the options leave open that the same kind wrote them."""
    return wrote == reader or (wrote == _LIKE_ADAM and reader not in (kind for _, kind in _OPTIONS))


def writer(at: FailingLine) -> str | None:
    """The kind whose options the groups have."""
    names = _names(at, "group")
    return next((kind for options, kind in _OPTIONS if all(f"'{item}'" in names for item in options)), None)


def _names(at: FailingLine, table: str) -> Sequence[str]:
    return next((item.names or [] for item in at.near if item.of == table), [])


def _kept(at: FailingLine) -> Sequence[str]:
    """`'momentum_buffer'`."""
    found = _names(at, "p_state") or _names(at, "state")
    return [] if "'param_groups'" in found else found
