"""The tree of names: paths, wrappers, optimizer state, several models, damage."""

from __future__ import annotations

from pathlib import Path

from pytracer.decode.recording.reader import read_box
from tests.support.synth import Box
from tests.support.synth_names import BUFFER, MODULE, PARAMETER, STATE, USER, NameTree

BASE = 0x7F50_0000_0000


def names(tmp_path: Path, box: Box, tree: NameTree) -> dict[int, list[str]]:
    """Base -> names."""
    tree.write()
    path = tmp_path / "node0.101.blackbox"
    box.write(path)
    return {base: [item.name for item in items] for base, items in read_box(path).named.items()}


def test_names_are_paths_below_the_root(tmp_path: Path) -> None:
    """The root's class is omitted while no other model has that path; wrappers are left out."""
    box = Box(pid=101)
    tree = NameTree(box)
    root = tree.add(MODULE, "DistributedDataParallel")
    model = tree.add(MODULE, "module", root, flags=1)
    layer = tree.add(MODULE, "0", tree.add(MODULE, "layers", model))
    weight = tree.add(
        PARAMETER, "weight", layer, at=(BASE, 64), grad=BASE + 0x1000, earlier=BASE + 0x2000, earlier_epoch=1
    )
    tree.add(BUFFER, "seen", model, at=(BASE + 0x3000, 8))
    tree.add(STATE, "exp_avg", weight, at=(BASE + 0x4000, 64))
    tree.add(USER, "kv_cache[0]", at=(BASE + 0x5000, 64))
    assert names(tmp_path, box, tree) == {
        BASE: ["parameter layers.0.weight"],
        BASE + 0x1000: ["gradient of layers.0.weight"],
        BASE + 0x2000: ["parameter layers.0.weight"],
        BASE + 0x3000: ["buffer seen"],
        BASE + 0x4000: ["exp_avg of layers.0.weight"],
        BASE + 0x5000: ["kv_cache[0]"],
    }


def test_several_models_are_told_apart(tmp_path: Path) -> None:
    """By their classes, and those of one class by numbers; a path that only one of them has is enough by itself."""
    box = Box(pid=101)
    tree = NameTree(box)
    for i, kind in enumerate(("Net", "Critic", "Net")):
        net = tree.add(MODULE, kind)
        tree.add(PARAMETER, "weight", net, at=(BASE + i * 0x1000, 64))
    tree.add(PARAMETER, "bias", net, at=(BASE + 0x8000, 64))
    assert [found[0] for found in names(tmp_path, box, tree).values()] == [
        "parameter weight of Net",
        "parameter weight of Critic",
        "parameter weight of Net #2",
        "parameter bias",
    ]


def test_module_below_itself_ends_somewhere(tmp_path: Path) -> None:
    """Damaged links make no endless name; a slot or text that is not there is a question mark or nothing."""
    box = Box(pid=101)
    tree = NameTree(box)
    tree.add(MODULE, "a", 2)
    tree.add(MODULE, "b", 1)
    tree.add(PARAMETER, "weight", 1, at=(BASE, 64))
    tree.add(PARAMETER, "bias", 999, at=(BASE + 0x1000, 64))
    found = names(tmp_path, box, tree)
    assert found[BASE][0].startswith("parameter ")
    assert len(found[BASE][0]) < 200
    assert found[BASE + 0x1000][0].startswith("parameter bias")
