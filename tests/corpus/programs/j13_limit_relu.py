import torch
from torch import nn


class KeywordNet(nn.Module):
    def __init__(self, classes=6, inplace=False):
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 5, padding=2)
        self.act = nn.ReLU(inplace=inplace)
        self.pool = nn.AdaptiveAvgPool1d(4)
        self.out = nn.Linear(32, classes)

    def forward(self, wave):
        return self.out(self.pool(self.act(self.conv(wave))).flatten(1))


def clip_first_activation(model, limit):
    """Put clamp(0, limit) behind the first activation of a frozen model."""
    graph = model.graph
    act = graph.findNode("aten::relu")
    with graph.insert_point_guard(act):
        low = graph.insertConstant(0.0)
        high = graph.insertConstant(limit)
        clamp = graph.create("aten::clamp", [act.output(), low, high], 1)
        clamp.insertAfter(act)
        act.output().replaceAllUsesWith(clamp.output())
        clamp.replaceInputWith(clamp.output(), act.output())
    return model


def export(net, path, limit=6.0):
    frozen = torch.jit.freeze(torch.jit.script(net.eval()))
    clipped = clip_first_activation(frozen, limit)
    print(path, "nodes", len(list(clipped.graph.nodes())), flush=True)
    torch.jit.save(clipped, path)
    return clipped


def main():
    torch.manual_seed(0)
    wave = torch.randn(2, 1, 400)
    for name, net in {"small": KeywordNet(), "fast": KeywordNet(inplace=True)}.items():
        model = export(net, f"/tmp/kws_{name}.pt")
        print(name, tuple(model(wave).shape), flush=True)


if __name__ == "__main__":
    main()
