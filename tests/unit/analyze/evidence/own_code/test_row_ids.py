"""Ids that the program's own C takes for columns of a block of rows, with as many as a number of the same call."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from pytracer.analyze.evidence.own_code.large_ids import large_ids
from pytracer.analyze.evidence.own_code.row_ids import row_uses
from tests.support.native_views import native_view

NAMES = ("labels", "batch", "classes", "grad")
HEAD = "float loss(const long *labels, int batch, int classes, float *grad) {\n"
MALLOC = "    float *diff = static_cast<float *>(std::malloc(sizeof(float) * batch * classes));\n"
LABEL = "    for (int i = 0; i < batch; ++i) {\n        const int label = static_cast<int>(labels[i]);\n"
WRITE = "        diff[i * classes + label] -= 1.f;\n    }\n"


@pytest.mark.parametrize(
    "body",
    [
        MALLOC + LABEL + WRITE,
        MALLOC + LABEL + "        diff[label + (i * classes)] = 0;\n    }\n",
        MALLOC + "    if (!diff) return -1.f;\n" + LABEL + "        if (label < 0) continue;\n" + WRITE,
        MALLOC + "    if (scores[0] > top) top = scores[0];\n" + LABEL + WRITE,
        MALLOC + LABEL + "        float *row = diff + i * classes;\n        row[label]--;\n    }\n",
        MALLOC + LABEL + "        float *row = &diff[(size_t)i * classes];\n        row[label] += 2;\n    }\n",
        MALLOC + "    for (int i = 0; i < batch; ++i) ++diff[i * classes + labels[i]];\n",
        "    std::vector<float> diff(batch * classes, 0.f);\n" + LABEL + WRITE,
        "    float *diff = new float[(size_t)batch * classes];\n" + LABEL + WRITE,
        "    float *diff = (float *)calloc((size_t)batch * classes, sizeof(float));\n" + LABEL + WRITE,
    ],
)
def test_elements_as_columns_of_a_block_of_rows(body: str) -> None:
    found = {(item.array, item.block, item.count, item.made) for item in row_uses(f"{HEAD}{body}", NAMES)}
    assert found == {("labels", "diff", "classes", 2)}


@pytest.mark.parametrize(
    "body",
    [
        MALLOC + LABEL + "        if (label < 0 || label >= classes) continue;\n" + WRITE,
        MALLOC + LABEL + "        assert(label < classes);\n" + WRITE,
        MALLOC + LABEL + "        if (label == 255) continue;\n" + WRITE,  # the largest one may be left out
        MALLOC + LABEL + "        if (labels[i] == ignored) {\n            continue;\n        }\n" + WRITE,
        MALLOC + LABEL + "        if (!is_class(label)) continue;\n" + WRITE,
        MALLOC + LABEL + "        if (kept[i] == 0) continue;\n" + WRITE,
        MALLOC + LABEL + "        if (kept) {\n" + WRITE + "        }\n",
        "    int top = classes;\n" + MALLOC + LABEL + "        if (label >= top) return -1.f;\n" + WRITE,
        "    ++classes;\n" + MALLOC + LABEL + WRITE,
        "    classes = classes + 1;\n" + MALLOC + LABEL + WRITE,
        MALLOC + "    for (int i = 0; i < batch; i++) labels[i] = known(labels[i]);\n" + LABEL + WRITE,
        MALLOC + LABEL.replace("labels[i])", "labels[i] % classes)") + WRITE,
        MALLOC + LABEL.replace("(labels[i])", "(std::min<long>(labels[i], classes - 1))") + WRITE,
        MALLOC + LABEL + "        loss += diff[i * classes + label];\n    }\n",  # only read
        MALLOC + LABEL + "        label -= 1;\n" + WRITE,
        MALLOC + LABEL + "        diff[i * classes + i] = label;\n    }\n",
        "    float *diff = malloc(sizeof(float) * batch * (classes + 1));\n" + LABEL + WRITE,
        "    float *diff = malloc(sizeof(float) * batch * MOST);\n" + LABEL + WRITE,
        "    // float *diff = malloc(sizeof(float) * batch * classes);\n" + LABEL + WRITE,
        LABEL + WRITE.replace("diff", "grad"),  # how long that is, the caller knows
    ],
)
def test_checked_ids_and_other_sizes_are_none(body: str) -> None:
    assert not [*row_uses(f"{HEAD}{body}", NAMES)]


@pytest.mark.parametrize("function", ["lib.loss", "call"])
def test_report_names_the_write_and_that_the_last_row_ends_the_block(function: str, tmp_path: Path) -> None:
    call = f"{function}(labels.ctypes.data, batch, classes, grad)"
    program = f"call = lib.loss\ndef run(lib, labels, batch, classes, grad):\n    {call}\nrun(1)\n"
    view = native_view(
        tmp_path, program, f"{HEAD}{MALLOC}{LABEL}{WRITE}}}\n", at="(labels.ctypes", way=[("loss", "diff[")],
        numbers={"batch": 250, "classes": 3}, arrays=[("labels", 0x7F00_0000_0000, "int64", (250,))],
    )  # fmt: skip
    (held,) = view.crash.arrays
    view.crash.arrays = (structs.replace(held, minimum=0, maximum=2),)
    assert large_ids(view) is None
    view.crash.arrays = (structs.replace(held, minimum=0, maximum=3),)
    told = large_ids(view)
    assert told is not None
    assert told.summary.endswith("which is given `labels` (0..3) as columns of rows of 3 elements (`classes`)")
    assert "ops.c:5 (`diff[i * classes + label] -= 1.f;`) in loss()" in told.advice
    assert "3 is in the next row, and of the last row behind the block" in told.advice
