"""Generate tokens with temperature and nucleus sampling."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY = 1024


class Tiny(nn.Module):
    """A recurrent language model."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 128)
        self.cell = nn.GRUCell(128, 128)
        self.head = nn.Linear(128, VOCABULARY)

    def forward(self, token: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and the next state."""
        state = self.cell(self.embed(token), state)
        return self.head(state), state


def sample(logits: torch.Tensor, temperature: float, allowed: torch.Tensor) -> torch.Tensor:
    """Draw one token for each row among the allowed ones."""
    masked = logits.masked_fill(~allowed, float("-inf"))
    probabilities = torch.softmax(masked / temperature, dim=-1)
    return torch.multinomial(probabilities, 1).squeeze(1).cpu()


def main() -> None:
    """Generate a few tokens under a shrinking grammar."""
    torch.manual_seed(0)
    model = Tiny().cuda().eval()
    token = torch.zeros(4, dtype=torch.long)
    state = torch.zeros(4, 128, device="cuda")
    with torch.no_grad():
        for step in range(12):
            logits, state = model(token.cuda(), state)
            allowed = torch.arange(VOCABULARY, device="cuda").expand(4, -1) >= 128 * step
            token = sample(logits, 0.8, allowed)
            print(step, token.tolist())


if __name__ == "__main__":
    main()
