# pytorch/pytorch#128693, pytorch/pytorch#77896
import torch


class Observer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("low", torch.empty(0))
        self.register_buffer("high", torch.empty(0))
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("zero", torch.zeros(1, dtype=torch.int32))
        self.on = torch.ones(1, dtype=torch.int64)

    def forward(self, x):
        return torch.fused_moving_avg_obs_fake_quant(
            x, self.on, self.on, self.low, self.high, self.scale, self.zero, 0.01, 0, 255, 0, False, False
        )


print(Observer()(torch.randn(4, 4)))
