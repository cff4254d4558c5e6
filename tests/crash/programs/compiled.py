"""Programs that compile code with pytracer's hooks and wrappers: modules, optimizers, loaders, its own functions."""

import copy
import functools
import sys

import torch
from torch import nn
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset
from what_dynamo_did import four_steps, tell

import pytracer

compiled = functools.partial(torch.compile, backend="eager")
whole = functools.partial(compiled, fullgraph=True)


class Net(nn.Module):
    """Parameters, a buffer that is replaced in each forward pass, batch statistics."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + 1
        return self.last(torch.relu(self.norm(self.first(x))))


class Scaled(nn.Module):
    """A module that dynamo can construct."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x):
        return self.inner(x) * self.scale


class OwnSGD(torch.optim.Optimizer):
    """An optimizer whose step is one graph; torch's own break it on purpose."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad * group["lr"])


def batch():
    return torch.randn(5, 8, generator=torch.Generator().manual_seed(0))


def trained(make_optimizer):
    net = Net()
    losses = four_steps(make_optimizer(net.parameters()), net, batch(), compiled)
    return losses + [parameter.detach() for parameter in net.parameters()]


def with_gradients(step, net, steps=3):
    losses = []
    for _ in range(steps):
        net.zero_grad()
        loss = net(batch()).square().sum()
        loss.backward()
        step()
        losses.append(loss.detach())
    return losses


def forward_in_one_graph():
    run = whole(Net())
    return [run(batch()).detach() for _ in range(3)]


def training_step_with_adam():
    return trained(functools.partial(torch.optim.Adam, lr=0.01))


def training_step_with_own_optimizer():
    return trained(OwnSGD)


def optimizer_step():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return with_gradients(compiled(lambda: optimizer.step()), net)


def own_optimizer_in_one_graph():
    net = Net()
    return with_gradients(whole(OwnSGD(net.parameters()).step), net)


def module_built_and_moved_in_one_graph():
    relu = nn.ReLU()

    @whole
    def run(x):
        module = Scaled(relu)
        module.float()
        return module(x) + module.state_dict()["scale"]

    return [run(batch()) for _ in range(2)]


def modules_built_copied_moved_loaded():
    net, x = Net(), batch()

    @compiled
    def run(x):
        other = copy.deepcopy(net)
        fresh = Net()
        fresh.load_state_dict(net.state_dict())
        other.to(torch.float64)
        result = other(x.double()) + fresh(x)
        net.half().float()
        return result + net(x)

    return [run(x).detach() for _ in range(2)]


def parameters_replaced():
    net, x = nn.Linear(8, 4), batch()

    @compiled
    def run(x):
        net.weight = nn.Parameter(net.weight.detach() * 1.5)
        net.register_buffer("shift", x.mean())
        net.after = nn.ReLU()
        return net.after(net(x) + net.shift)

    return [run(x).detach() for _ in range(3)]


def optimizer_state_loaded():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with_gradients(optimizer.step, net, steps=1)
    state = copy.deepcopy(optimizer.state_dict())

    @compiled
    def run():
        optimizer.load_state_dict(state)
        optimizer.step()
        return net(batch())

    return [run().detach() for _ in range(2)]


def functional_in_one_graph():
    net = Net()
    state = {name: tensor.detach() + 1 for name, tensor in net.named_parameters()}
    run = whole(lambda x: functional_call(net, state, (x,)))
    return [run(batch()).detach()]


def loader_inside():
    net, data = Net(), TensorDataset(torch.ones(20, 8))

    @compiled
    def epoch():
        return sum(net(x).sum() for (x,) in DataLoader(data, batch_size=5))

    return [epoch().detach()]


def functions_of_pytracer_in_one_graph():
    @whole
    def run(x, n):
        pytracer.step(n)
        pytracer.mark("compiled")
        y = pytracer.name(x * 2, "y")
        pytracer.is_enabled()
        return pytracer.name([y], "list")[0] + 1

    return [run(batch(), n) for n in range(4)]


SCENARIOS = [
    forward_in_one_graph, training_step_with_adam, training_step_with_own_optimizer, optimizer_step,
    own_optimizer_in_one_graph, module_built_and_moved_in_one_graph, modules_built_copied_moved_loaded,
    parameters_replaced, optimizer_state_loaded, functional_in_one_graph, loader_inside,
    functions_of_pytracer_in_one_graph,
]  # fmt: skip

if len(sys.argv) > 1:
    SCENARIOS = [scenario for scenario in SCENARIOS if scenario.__name__ in sys.argv]
tell(SCENARIOS)
