import torch
import torch.nn as nn
from torch.ao.quantization import FusedMovingAvgObsFakeQuantize, MovingAveragePerChannelMinMaxObserver


def weight_quantizer():
    return FusedMovingAvgObsFakeQuantize(
        observer=MovingAveragePerChannelMinMaxObserver,
        quant_min=-128,
        quant_max=127,
        dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
    )


class Prepared(nn.Module):
    """A linear layer or an output projection that trains with quantized weights."""

    def __init__(self, inner, quantizer):
        super().__init__()
        self.inner, self.quantizer = inner, quantizer

    def forward(self, x):
        w = self.quantizer(self.inner.weight)
        return nn.functional.linear(x, w, self.inner.bias)


def prepare(model, quantizer):
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, Prepared(child, quantizer))
        else:
            prepare(child, quantizer)
    return model


class TinyLM(nn.Module):
    def __init__(self, vocab=3_000_000, dim=16):
        super().__init__()
        self.mix = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)
        self.logits = nn.Linear(dim, vocab)

    def forward(self, h):
        h = torch.tanh(self.mix(h)) * torch.sigmoid(self.gate(h))
        return self.logits(h)


torch.manual_seed(0)
model = prepare(TinyLM(), weight_quantizer()).train()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(3):
    h = torch.randn(2, 16)
    out = model(h)
    loss = out.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("step", step, round(loss.item(), 4), flush=True)
