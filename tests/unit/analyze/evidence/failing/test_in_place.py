"""A tensor that was changed in place before backward(): what the headline says of the tensor, and of the lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.exceptions.telling import telling_words
from pytracer.analyze.evidence.failing.explained import explained
from tests.unit.analyze.evidence.test_failing import of_program

HEAD = "one of the variables needed for gradient computation has been modified by an inplace operation"
HINT = (
    " Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
    "torch.autograd.set_detect_anomaly(True, check_nan=False)."
)
NORMALIZE = """def normalize(batch):
    {}
    return batch
net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
loss = normalize(net(torch.ones(2, 3))).sum()
loss.backward()
"""


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        ("[torch.FloatTensor [4, 3, 64, 64]], which is output 0 of Tanh", "output 0 of Tanh [4, 3, 64, 64]"),
        ("[torch.cuda.HalfTensor [8]], which is output 1 of SplitBackward0", "output 1 of SplitBackward0 [8]"),
        (
            "[torch.FloatTensor [8]], which is output 0 of torch::autograd::CopySlices",
            "output 0 of torch::autograd::CopySlices [8]",
        ),
        ("[torch.FloatTensor []]", "a tensor []"),
    ],
)
def test_headline_has_the_tensor_whole(tensor: str, words: str) -> None:
    """torch's message is longer than a headline's: the tensor is what counts of it."""
    message = f"{HEAD}: {tensor}, is at version 4; expected version 0 instead.{HINT}"
    assert telling_words(message) == f"{HEAD}: {words}"


@pytest.mark.parametrize(
    ("lines", "subject"),
    [
        (
            "batch.add_(1.0).div_(2.0)",
            "line 2 (`batch.add_(1.0).div_(2.0)`) changes in place what line 5 (`net(torch.ones(2, 3))`) made",
        ),
        (
            "batch[:, 0] = 0; batch /= 2",
            "line 2 (`batch[:, 0] = 0`) changes in place what line 5 (`net(torch.ones(2, 3))`) made",
        ),
        (
            "batch += batch.mean()\n    batch.mul_(2)",
            (
                "line 2 (`batch += batch.mean()`) and line 3 (`batch.mul_(2)`) change in place what line 6 "
                "(`net(torch.ones(2, 3))`) made"
            ),
        ),
        (  # many: the last of them by its operation
            "batch += batch.mean()\n    batch -= batch.std()\n    batch.mul_(2)",
            "line 4 (`batch.mul_(2)`) seems to change it in place",
        ),
        (  # one of them leaves no node
            "batch += batch.mean()\n    batch -= batch.std()\n    batch.detach().mul_(2)",
            "None",
        ),
    ],
)
def test_headline_has_the_lines_that_the_advice_names(lines: str, subject: str, tmp_path: Path) -> None:
    """Where they are few."""
    assert of_program(tmp_path, NORMALIZE.format(lines), lambda *given: explained(*given).subject) == subject
