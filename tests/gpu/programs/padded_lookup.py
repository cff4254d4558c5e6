"""Train a table with a hand-written gradient for padded lookups."""

from __future__ import annotations

import torch

ROWS = 20_000
WIDTH = 64


class PaddedLookup(torch.autograd.Function):
    """Look rows up in a table that has a zero row in front."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of the padded table."""
        padded = torch.cat([table.new_zeros(1, table.shape[1]), table])
        ctx.save_for_backward(ids)
        ctx.rows = table.shape[0]
        return padded[ids]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Sum the gradients of equal rows."""
        (ids,) = ctx.saved_tensors
        grad_table = grad.new_zeros(ctx.rows, grad.shape[1])
        grad_table.index_add_(0, ids, grad)
        if not torch.isfinite(grad_table).all():
            grad_table.nan_to_num_()
        return grad_table, None


def main() -> None:
    """Fit the table to random targets."""
    torch.manual_seed(0)
    table = torch.randn(ROWS, WIDTH, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([table], lr=0.1)
    order = torch.randperm(ROWS + 1).cuda()
    for step, ids in enumerate(order.split(500)):
        loss = (PaddedLookup.apply(table, ids) - 1.0).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
