"""Quantize the shared classifier for the phone build and check its outputs."""
import torch
import torch.nn as nn

TASKS = {
    "category": ["shoe", "shirt", "bag", "hat"],
    "color": ["red", "green", "blue"],
    "brand": [],
}


class MultiTaskClassifier(nn.Module):
    def __init__(self, tasks, in_dim=48, hidden=64):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(in_dim, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
        )
        self.heads = nn.ModuleDict({name: nn.Linear(hidden, len(labels)) for name, labels in tasks.items()})

    def forward(self, x):
        h = self.trunk(x)
        return {name: head(h) for name, head in self.heads.items()}


def train(model, tasks, steps=60):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        x = torch.randn(32, 48)
        out = model(x)
        loss = torch.zeros(())
        for name, labels in tasks.items():
            if labels:
                target = torch.randint(len(labels), (32,))
                loss = loss + nn.functional.cross_entropy(out[name], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def quantize_for_mobile(model):
    torch.backends.quantized.engine = "qnnpack"
    return torch.ao.quantization.quantize_dynamic(model.eval(), {nn.Linear}, dtype=torch.qint8)


def compare(float_model, int8_model, n=64):
    x = torch.randn(n, 48)
    with torch.no_grad():
        ref, out = float_model(x), int8_model(x)
    return {name: (ref[name] - out[name]).abs().max().item() for name in ref if ref[name].numel()}


def main():
    torch.manual_seed(0)
    model = MultiTaskClassifier(TASKS)
    print("train loss", round(train(model, TASKS), 4), flush=True)
    int8_model = quantize_for_mobile(model)
    print("quantized", flush=True)
    print("max difference per task", compare(model.eval(), int8_model), flush=True)
    torch.save(int8_model.state_dict(), "classifier_int8.pt")


if __name__ == "__main__":
    main()
