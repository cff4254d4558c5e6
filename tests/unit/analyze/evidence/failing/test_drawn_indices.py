"""Numbers that a model drew from its own logits, and that its table of embeddings does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.analyze.evidence.test_failing import of_program

MODEL = """class Model(nn.Module):
    def __init__(self, words, wide, outputs):
        super().__init__()
        self.table = nn.Embedding(words, wide)
        self.head = nn.Linear(wide, outputs)
        self.head.weight.data.zero_()
        self.head.bias.data[-1] = 100.0
    def forward(self, idx):
        return self.head(self.table(idx))
    @torch.no_grad()
    def generate(self, idx):
        for _ in range(4):
            logits = self(idx)
            {}
            idx = torch.cat((idx, drawn), dim=1)
        return idx
"""
DRAWS = [
    "drawn = torch.multinomial(logits[:, -1].softmax(-1), num_samples=1)",
    "probs = torch.softmax(logits[:, -1, :] / 0.8, dim=-1); drawn = torch.multinomial(probs, 1)",
    "drawn = logits[:, -1].argmax(dim=-1, keepdim=True)",
    "_, drawn = torch.topk(logits[:, -1], k=1)",
    "drawn = torch.distributions.Categorical(logits=logits[:, -1]).sample()[:, None]",
    "value, drawn = logits[:, -1].max(-1, keepdim=True)",
]


@pytest.mark.parametrize("draw", DRAWS)
def test_logits_wider_than_the_table(draw: str, tmp_path: Path) -> None:
    """The table is right: the layer that makes the logits is not."""
    source = MODEL.format(draw) + "Model(5, 8, 9).generate(torch.zeros(1, 1, dtype=torch.long))\n"
    words = of_program(tmp_path, source) or ""
    assert "has 5 rows, 0 to 4, and `idx` reaches 8, taken from `" in words
    assert "chooses among 9 logits, and there are 5 rows. " in words
    assert "give 5 outputs to the layer that makes the logits. A larger table is right only where" in words
    assert "resize_token_embeddings" not in words


def test_rows_of_the_table_as_logits(tmp_path: Path) -> None:
    """Their width may be that of the logits."""
    source = MODEL.format(DRAWS[2]).replace("return self.head(self.table(idx))", "return self.table(idx)")
    source += "torch.manual_seed(0)\nmodel = Model(5, 9, 9)\nmodel.table.weight.data[:, 8] = 100.0\n"
    words = of_program(tmp_path, source + "model.generate(torch.zeros(1, 1, dtype=torch.long))\n") or ""
    assert "layer that makes the logits, or rows of 5 to the table, if these are the logits" in words


@pytest.mark.parametrize(
    ("draw", "start", "outputs"),
    [
        (DRAWS[2], "torch.tensor([[7]])", 5),  # the first round: what it begins with
        (DRAWS[2], "torch.tensor([[7]])", 9),
        ("drawn = logits[:, -1].argmax(dim=-1, keepdim=True) + 4", "torch.tensor([[1]])", 5),  # moved behind it
        ("drawn = logits.argmax() [None, None] * 0 + 8", "torch.tensor([[1]])", 5),
    ],
)
def test_numbers_that_the_logits_did_not_give(draw: str, start: str, outputs: int, tmp_path: Path) -> None:
    """The look-alikes have the general advice."""
    words = of_program(tmp_path, MODEL.format(draw) + f"Model(5, 8, {outputs}).generate({start})\n") or ""
    assert "logits" not in words and "has 5 rows, 0 to 4" in words
