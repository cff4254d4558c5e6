"""Score a batch of essays with a small causal language model, window by window."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HEADS, WINDOW, CONTEXT = 4096, 768, 12, 128, 1024


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_a = nn.LayerNorm(WIDTH)
        self.norm_b = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply attention and the feed-forward part."""
        rows, length, _ = x.shape
        q, k, v = self.qkv(self.norm_a(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.mlp(self.norm_b(x))


class Writer(nn.Module):
    """Token and position embeddings, blocks and a tied head."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(depth)))

    def forward(self, tokens: torch.Tensor, start: int) -> torch.Tensor:
        """Return logits of a window that begins at `start`."""
        steps = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.token(tokens)
        x = x + self.place(steps)
        return self.blocks(x) @ self.token.weight.T


@torch.no_grad()
def surprise(model: Writer, essays: torch.Tensor) -> float:
    """Return the mean token loss over all windows."""
    total = torch.zeros((), device=essays.device)
    windows = essays.split(WINDOW, dim=1)
    for number, window in enumerate(windows):
        logits = model(window, number * WINDOW)
        total += F.cross_entropy(logits[:, :-1].flatten(0, 1), window[:, 1:].flatten())
    return total.item() / len(windows)


def main() -> None:
    """Score one batch of essays."""
    torch.manual_seed(3)
    model = Writer().cuda().eval()
    essays = torch.randint(0, VOCABULARY, (64, 1152)).cuda()
    print(f"mean token loss: {surprise(model, essays):.3f}")


if __name__ == "__main__":
    main()
