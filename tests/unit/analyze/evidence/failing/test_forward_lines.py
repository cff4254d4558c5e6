"""What has to be computed anew behind a step: all lines of the loss that went through the module of the weight."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.analyze.evidence.failing.test_changed_weights import words


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            """fakes = self.gen(z)
p_fake = self.dis(fakes)
g_loss = torch.log(1 - p_fake).mean()
self.dis_opt.step()
g_loss.backward()  # failed""",
            "then line 5) needs the old value: compute all of it anew behind line 6, or call every backward()",
        ),
        (
            """feats = self.dis.features(x)
score = self.dis(x).squeeze()
adv = F.softplus(-score)
match = F.l1_loss(feats, real)
other = self.reg(x)
g_loss = adv + match + other
self.dis_opt.step()
g_loss.backward()  # failed""",
            "(line 3: `feats = self.dis.features(x)`, then what uses it up to line 8) needs the old value",
        ),
        (
            """score, feats = self.dis(x)
adv = F.softplus(-score)
g_loss = adv + feats.mean()
self.dis_opt.step()
g_loss.backward()  # failed""",
            "(line 3: `score, feats = self.dis(x)`, then lines 4 and 5) needs the old value",
        ),
        (
            """norm = self.dis.features[4].weight.norm()
g_loss = norm + 1
self.dis_opt.step()
g_loss.backward()  # failed""",
            "(line 3: `norm = self.dis.features[4].weight.norm()`, then line 4) needs the old value",
        ),
        (
            """score = self.dis(x)
adv, fm = score.mean(), score.std()
self.dis_opt.step()
(adv + fm).backward()  # failed""",
            "or run the forward of this loss anew after that step (line 3: `score = self.dis(x)`, then line 4).",
        ),
    ],
    ids=["variable", "several", "unpacked", "weight itself", "expression"],
)
def test_lines_from_the_forward_to_the_loss_are_named(body: str, lines: str, tmp_path: Path) -> None:
    """What does not go through that module is left out."""
    assert lines in words(tmp_path, body)


CALLS = """fakes = self.gen(z)
score = {0}
g_loss = score.mean()
self.dis_opt.step()
g_loss.backward()  # failed"""


@pytest.mark.parametrize(
    ("call", "more"),
    [
        ("self.rate(fakes)", "    def rate(self, x):\n        seen = self.dis(x)\n        return seen.flatten()\n"),
        ("rate(self.dis, fakes)", "def rate(judge, x):\n    return judge(x).flatten()\n"),
    ],
    ids=["method", "function"],
)
def test_forward_in_another_function_is_found(call: str, more: str, tmp_path: Path) -> None:
    assert f"(line 4: `score = {call}`, then line 5) needs the old value" in words(
        tmp_path, CALLS.format(call), more=more
    )


@pytest.mark.parametrize(
    ("call", "more"),
    [
        ("self.rate(fakes)", "    def rate(self, x):\n        self.seen = self.dis(x)\n        return x.flatten()\n"),
        ("rate(self.dis, fakes)", "def rate(judge, x):\n    return judge(x).detach()\n"),
    ],
    ids=["returns another value", "cut off"],
)
def test_function_that_returns_nothing_of_the_module_is_not_named(call: str, more: str, tmp_path: Path) -> None:
    found = words(tmp_path, CALLS.format(call), more=more)
    assert "Compute it anew, from the forward on, behind line" in found
    assert call not in found


@pytest.mark.parametrize(
    "body",
    [
        "g_loss = F.softplus(-self.dis(x)).mean()\nself.dis_opt.step()\ng_loss.backward()  # failed",
        "x = self.gen(z)\ng_loss = self.dis(x).mean()\nself.dis_opt.step()\ng_loss.backward()  # failed",
        "old = self.dis(x).detach()\ng_loss = self.dis(x) - old\nself.dis_opt.step()\ng_loss.backward()  # failed",
        """with torch.no_grad():
    old = self.dis(x)
g_loss = self.dis(x) - old
self.dis_opt.step()
g_loss.backward()  # failed""",
    ],
    ids=["one line", "data of another model", "cut off", "without gradients"],
)
def test_loss_of_one_line_is_that_line_alone(body: str, tmp_path: Path) -> None:
    found = words(tmp_path, body)
    assert "Compute it anew behind line" in found
    assert ", or call every backward() before the first step()." in found


@pytest.mark.parametrize(
    "body",
    [
        """score = judge(x)
g_loss = score.mean()
self.dis_opt.step()
g_loss.backward()  # failed""",
        """penalty = gradient_penalty(self.dis, x)
g_loss = penalty.mean()
self.dis_opt.step()
g_loss.backward()  # failed""",
        """h = torch.zeros(2)
for x in self.data:
    g_loss = self.dis(h) + h
    h = self.dis(x)
    self.dis_opt.step()
    g_loss.backward()  # failed""",
    ],
    ids=["unknown function", "unknown function of the module", "round before"],
)
def test_no_line_is_named_where_none_is_known_to_be_the_first(body: str, tmp_path: Path) -> None:
    found = words(tmp_path, body)
    assert "Compute it anew, from the forward on, behind line" in found
