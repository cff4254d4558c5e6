"""Keys of a checkpoint that are not those of the model: what both name alike, and what loading them would leave out."""

from __future__ import annotations

import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.more_layers import more_layers

_PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "backbone.", "encoder.", "state_dict.")
_KEY = Pattern(r'"([^"]+)"')
_CUT = "\n[...]\n"  # where the recorder left out the middle of a message
_INNER = Pattern("state|model|net|weights")
_SEVERAL = 2  # one name may be anywhere
_OF_OPTIMIZER = {"state", "param_groups"}


class Keys(list[str]):
    """The first of a list, and how many `more` there were."""

    more = 0

    @property
    def others(self) -> str:
        """Beside the first."""
        count = len(self) - 1 + self.more
        return f" and {count} more" if count > 0 else ""

    @classmethod
    def of(cls, message: str, kind: str) -> Keys:
        """Those that load_state_dict() names as Missing or as Unexpected."""
        found = re.search(rf'{kind} key\(s\) in state_dict: ((?:"[^"]+",? ?)+)(?:and (\d+) more)?', message)
        keys = cls(_KEY.findall(found[1]) if found is not None else ())
        keys.more = int(found[2] or 0) if found is not None else 0
        return keys


def differing_keys(at: FailingLine, model: str) -> str | None:
    """What the keys show that load_state_dict() of a module names.

    Args:
        at: Its line.
        model: What it is called, with its line.
    """
    missing, unexpected = Keys.of(at.message, "Missing"), Keys.of(at.message, "Unexpected")
    if _CUT in at.message and missing and not unexpected:
        return (
            f"The checkpoint lacks `{missing[0]}` and many more, and the keys that it has were too many to record. "
            f"Print the first of both before line {at.line}. A prefix ('module.', '_orig_mod.', 'model.') is taken "
            "away by k.removeprefix(); strict=False would leave all of them untrained."
        )
    return (
        _of_optimizer(model, unexpected)
        or _with_prefix(model, missing, unexpected)
        or _without_prefix(model, missing, unexpected)
        or _of_one_part(model, missing, unexpected)
        or _around(unexpected)
        or _moved(model, missing, unexpected)
        or _renamed(model, missing, unexpected)
        or _differ(at, model, missing, unexpected)
    )


def _of_optimizer(model: str, unexpected: Keys) -> str | None:
    if {*unexpected} != _OF_OPTIMIZER:
        return None
    return (
        f"What is loaded is the state of an optimizer ('state', 'param_groups'), and {model} takes that of a model: "
        "give each load_state_dict() its own part of the checkpoint, and compare the keys of the line that saves it."
    )


def _with_prefix(model: str, missing: Keys, unexpected: Keys) -> str | None:
    """`module.fc.weight`, as of a wrapped model."""
    prefix = _prefix(unexpected, missing)
    if prefix is None:
        return None
    others = [key for key in unexpected if not key.startswith(prefix)]
    only = f" if k.startswith('{prefix}')" if others else ""
    first = next(key for key in unexpected if key.startswith(prefix))
    return (
        f"The checkpoint's keys begin with '{prefix}' (`{first}`), and those of {model} do not: take "
        f"it away (`{{k.removeprefix('{prefix}'): v for k, v in state.items(){only}}}`), or save the inner model's "
        "state_dict()."
    )


def _without_prefix(model: str, missing: Keys, unexpected: Keys) -> str | None:
    prefix = _prefix(missing, unexpected)
    if prefix is None or any(not key.startswith(prefix) for key in missing):
        return None
    return (
        f"The keys of {model} begin with '{prefix}' (`{missing[0]}`), and the checkpoint's do not: load into "
        f"the inner model (`.{prefix.rstrip('.')}`), or before it is wrapped."
    )


def _of_one_part(model: str, missing: Keys, unexpected: Keys) -> str | None:
    """`proj.weight` for `encoder.proj.weight`, beside keys of other parts that the checkpoint does not have."""
    if len(unexpected) < _SEVERAL or unexpected.more or missing.more:
        return None
    ends = [key.removesuffix(unexpected[0]) for key in missing if key.endswith(f".{unexpected[0]}")]
    fit = [item for item in ends if all(f"{item}{key}" in missing for key in unexpected)]
    if len(fit) != 1:
        return None
    others = Keys(key for key in missing if not key.startswith(fit[0]))
    stay = f"; `{others[0]}`{others.others} then keep the values that they begin with" if others else ""
    return (
        f"The checkpoint's keys (`{unexpected[0]}`) are those of one part of {model}, `.{fit[0].rstrip('.')}`, without "
        f"its name: load it there (`.{fit[0]}load_state_dict(...)`){stay}. strict=False would load nothing of it."
    )


def _prefix(longer: Keys, shorter: Keys) -> str | None:
    """What the one has before each of the others' keys; before the first, where all have a well known one."""
    if not longer or not shorter:
        return None
    ends = [key for key in longer if key.endswith(f".{shorter[0]}")]
    prefixes = [key.removesuffix(shorter[0]) for key in ends]
    sure = shorter if not longer.more else shorter[: min(len(longer), len(shorter)) // 2]  # of what is listed in both
    found = next((item for item in prefixes if all(f"{item}{key}" in longer for key in sure)), None)
    known = (
        item
        for item in _PREFIXES
        if all(key.startswith(item) for key in longer) and longer[0].removeprefix(item) in shorter
    )
    return found if found is not None else next(known, None)


def _around(unexpected: Keys) -> str | None:
    """A dict that has the state below one key."""
    if not unexpected or any("." in key for key in unexpected):
        return None
    inner = next((key for key in unexpected if _INNER.search(key)), None)
    if inner is None:
        return None
    there = ", ".join(unexpected[:4])
    return f"The checkpoint is a dict around the state (`{there}`): load checkpoint['{inner}']."


def _moved(model: str, missing: Keys, unexpected: Keys) -> str | None:
    """`2.weight` and `3.weight`: of an nn.Sequential with one layer more, or less, that has no parameter."""
    if not missing or missing.more or unexpected.more or len(missing) != len(unexpected):
        return None
    for step in (1, -1, 2, -2):
        moved = [_moved_key(key, missing, step) for key in unexpected]
        if {*moved} != {*missing} or (abs(step) > 1 and len({key.rpartition(".")[0] for key in unexpected}) == 1):
            continue  # of one layer alone: its neighbours may have moved by one, and have names of both
        how, put = ("higher", "put") if step > 0 else ("lower", "taken away")
        return (
            f"The checkpoint's `{unexpected[0]}`{unexpected.others} have a number in {model} that is {abs(step)} {how} "
            f"(`{moved[0]}`), as where a layer without parameters was {put} before them. Put such a layer elsewhere, "
            f"or rename the keys; strict=False would leave `{missing[0]}`{missing.others} untrained, without an error."
        )
    return None


def _moved_key(key: str, missing: Keys, step: int) -> str | None:
    """With one of its numbers changed, as the model has it."""
    parts = key.split(".")
    for place, part in enumerate(parts):
        if part.isdecimal():
            moved = ".".join([*parts[:place], str(int(part) + step), *parts[place + 1 :]])
            if moved in missing:
                return moved
    return None


def _renamed(model: str, missing: Keys, unexpected: Keys) -> str | None:
    """One part of all names differs, and nothing else."""
    if not missing or len(missing) != len(unexpected) or missing.more or unexpected.more:
        return None
    for key in unexpected:
        pair = _differing_part(key, missing[0])
        if pair is not None and {_replaced(item, *pair) for item in unexpected} == {*missing}:
            old, new = pair
            return (
                f"The checkpoint has `{key}`{unexpected.others} where {model} has `{missing[0]}`: only '{old}' and "
                f"'{new}' differ. If they are the same layer, load `{_renaming(unexpected, old, new)}`; "
                "strict=False would leave it untrained."
            )
    return None


def _renaming(unexpected: Keys, old: str, new: str) -> str:
    """The dict with other names; another layer may have the old one inside of its own."""
    if all(key.startswith(f"{old}.") for key in unexpected):
        name = f"re.sub(r'^{re.escape(old)}\\.', '{new}.', k)"
    else:
        name = f"k.replace('{old}.', '{new}.', 1)"
    return f"{{{name}: v for k, v in state.items()}}"


def _differing_part(one: str, other: str) -> tuple[str, str] | None:
    """Of `classifier.weight` and `head.weight`; no number, which may be another layer."""
    parts = [*zip(one.split("."), other.split("."), strict=False)]
    differ = [pair for pair in parts if pair[0] != pair[1]]
    if one.count(".") != other.count(".") or len(differ) != 1 or any(item.isdigit() for item in differ[0]):
        return None
    return differ[0] if differ[0] != parts[-1] else None


def _replaced(key: str, old: str, new: str) -> str:
    """In the first place that has it."""
    parts = key.split(".")
    return ".".join([*parts[: parts.index(old)], new, *parts[parts.index(old) + 1 :]]) if old in parts else key


def _differ(at: FailingLine, model: str, missing: Keys, unexpected: Keys) -> str | None:
    lacks = f"The checkpoint lacks `{missing[0]}`{missing.others}" if missing else ""
    has = f"has `{unexpected[0]}`{unexpected.others}, which {model} lacks" if unexpected else ""
    if not lacks and not has:
        return None
    words = f"{lacks} and {has}" if lacks and has else lacks or f"The checkpoint {has}"
    more = more_layers(at, missing, whole=True) if not missing.more and missing and not unexpected else None
    if more is not None:
        return (
            f"{words}: {more.words}. Make the model as it was when saved, or load with strict=False if the new ones "
            "may begin as they are."
        )
    if missing and unexpected:
        return (
            f"{words}: it is of a model with other layers or other names. Make the model as it was when saved, or "
            f"rename the keys; strict=False would leave `{missing[0]}`{missing.others} untrained, without an error."
        )
    return (
        f"{words}: it is of another architecture or version. Make the model as it was when saved, or load with "
        "strict=False if these may stay as they are."
    )
