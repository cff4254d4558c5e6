"""Gated MLP block that uses operators of our own, registered from Python."""
import torch
import torch.nn as nn
from torch.library import Library


class KernelPack:
    """The operators of one namespace, with their CPU kernels and their shape rules."""

    def __init__(self, ns):
        self.lib = Library(ns, "DEF")
        self.lib.define("gated_act(Tensor gate, Tensor up, float limit) -> Tensor")
        self.lib.define("gated_act_grad(Tensor grad, Tensor gate, Tensor up, float limit) -> (Tensor, Tensor)")
        self.lib.impl("gated_act", self._forward, "CPU")
        self.lib.impl("gated_act_grad", self._backward, "CPU")
        self.ops = getattr(torch.ops, ns)

    @staticmethod
    def _forward(gate, up, limit):
        return torch.nn.functional.silu(gate.clamp(max=limit)) * up

    @staticmethod
    def _backward(grad, gate, up, limit):
        g = gate.clamp(max=limit)
        sig = torch.sigmoid(g)
        d_gate = grad * up * sig * (1 + g * (1 - sig)) * (gate <= limit)
        return d_gate, grad * g * sig


class GatedAct:
    def __init__(self, limit=7.0, ns="gated_mlp_ops"):
        pack = KernelPack(ns)
        self.limit = limit
        self.fwd = pack.ops.gated_act.default
        self.bwd = pack.ops.gated_act_grad.default
        fwd, bwd = self.fwd, self.bwd

        class Fn(torch.autograd.Function):
            @staticmethod
            def forward(ctx, gate, up):
                ctx.save_for_backward(gate, up)
                return fwd(gate, up, limit)

            @staticmethod
            def backward(ctx, grad):
                return bwd(grad, *ctx.saved_tensors, limit)

        self.fn = Fn

    def __call__(self, gate, up):
        return self.fn.apply(gate, up)


class GatedMLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate = nn.Linear(dim, hidden)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)
        self.act = GatedAct()

    def forward(self, x):
        return x + self.down(self.act(self.gate(x), self.up(x)))


def main():
    torch.manual_seed(0)
    model = GatedMLP(32, 64)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    print(sum(p.numel() for p in model.parameters()), "parameters", flush=True)
    for step in range(50):
        x = torch.randn(16, 32)
        loss = (model(x) - x.roll(1, -1)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(step, loss.item(), flush=True)


if __name__ == "__main__":
    main()
