import math

import torch
import torch.nn as nn


class Reservoir(nn.Module):
    """Echo state network: fixed random recurrent weights, ridge regression readout."""

    def __init__(self, units=100, gain=0.9, leak=0.6, seed=0):
        super().__init__()
        gen = torch.Generator().manual_seed(seed)
        self.register_buffer("w", gain * torch.randn(units, units, generator=gen) / math.sqrt(units))
        self.register_buffer("w_in", 0.5 * torch.randn(units, generator=gen))
        self.leak = leak

    def step(self, state, u):
        drive = torch.tanh(self.w @ state + self.w_in * u)
        return (1 - self.leak) * state + self.leak * drive

    def jacobian(self, state, u):
        slope = 1 - torch.tanh(self.w @ state + self.w_in * u) ** 2
        return (1 - self.leak) * torch.eye(len(state)) + self.leak * slope[:, None] * self.w

    def run(self, series):
        state, states = torch.zeros(len(self.w)), []
        for u in series:
            state = self.step(state, u)
            states.append(state)
        return torch.stack(states)


def mackey_glass(n, tau=17, beta=0.2, gamma=0.1):
    x = [1.2] * (tau + 1)
    for _ in range(n):
        x.append(x[-1] + beta * x[-tau - 1] / (1 + x[-tau - 1] ** 10) - gamma * x[-1])
    return torch.tensor(x[tau + 1:])


def readout_error(states, target, washout=100, ridge=1e-4):
    s, y = states[washout:], target[washout:]
    w = torch.linalg.solve(s.T @ s + ridge * torch.eye(s.shape[1]), s.T @ y)
    return (s @ w - y).square().mean().sqrt().item()


def memory_time(model, series):
    """How fast a perturbation of the state grows or dies out: eigenvalues of the tangent map."""
    state, tangent = torch.zeros(len(model.w)), torch.eye(len(model.w))
    for u in series:
        tangent = model.jacobian(state, u) @ tangent
        state = model.step(state, u)
    radius = torch.linalg.eigvals(tangent).abs().max()
    return radius.log().item() / len(series)


def main():
    torch.set_num_threads(1)
    series = mackey_glass(1001)
    inputs, target = series[:-1] - 0.9, series[1:]
    for gain in (0.8, 1.2, 1.6, 2.4, 3.2, 4.0):
        model = Reservoir(gain=gain)
        rmse = readout_error(model.run(inputs), target)
        exponent = memory_time(model, inputs)
        print(f"gain {gain:.1f} rmse {rmse:.5f} exponent {exponent:+.4f}", flush=True)


if __name__ == "__main__":
    main()
