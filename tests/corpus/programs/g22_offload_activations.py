import os
import tempfile

import torch
import torch.nn as nn


class DiskOffload:
    """Moves the activations kept for backward to files, to save memory."""

    def __init__(self, folder, max_bytes):
        self.folder, self.max_bytes, self.used, self.count = folder, max_bytes, 0, 0

    def pack(self, tensor):
        size = tensor.numel() * tensor.element_size()
        if self.used + size > self.max_bytes:
            raise OSError(28, f"offload quota of {self.max_bytes} bytes is used up")
        path = os.path.join(self.folder, f"act_{self.count}.pt")
        torch.save(tensor, path)
        self.used, self.count = self.used + size, self.count + 1
        return path

    def unpack(self, path):
        return torch.load(path)


def saved_activations(root):
    stack, seen = [root], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "_raw_saved_result"):
            yield node, node._raw_saved_result
        stack.extend(fn for fn, _ in node.next_functions)


def offload_graph(loss, store):
    saved = list(saved_activations(loss.grad_fn))
    kept = 0
    for node, raw in saved:
        try:
            raw.register_hooks(store.pack, store.unpack)
        except OSError as err:
            kept += 1
            print(f"  {node.name()} stays in memory: {err}", flush=True)
    return saved, kept


def main():
    torch.manual_seed(0)
    layers = []
    for _ in range(6):
        layers += [nn.Linear(128, 128), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(128, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for quota in (1 << 20, 1 << 18):
        with tempfile.TemporaryDirectory() as folder:
            store = DiskOffload(folder, quota)
            loss = model(torch.randn(128, 128)).pow(2).mean()
            saved, kept = offload_graph(loss, store)
            print(f"quota {quota}: {store.count} on disk, {kept} in memory", flush=True)
            on_disk = [raw.data for _, raw in saved if isinstance(raw.data, str)]
            print(f"  files: {len(on_disk)}", flush=True)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"  loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
