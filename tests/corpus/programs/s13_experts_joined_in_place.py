import json
import os
import tempfile
import torch

HEADER = 4096


class Shard:
    """A shard of a checkpoint: a header of names and shapes, then the data, which is mapped."""

    def __init__(self, path):
        self.path = path

    def read(self):
        with open(self.path, "rb") as f:
            table = json.loads(f.read(HEADER).rstrip(b"\0"))
        size = os.path.getsize(self.path)
        flat = torch.from_file(self.path, shared=True, size=size // 4, dtype=torch.float32)[HEADER // 4 :]
        out, at = {}, 0
        for name, shape in table.items():
            n = torch.Size(shape).numel()
            out[name] = flat[at : at + n].view(shape)
            at += n
        return out

    def write(self, tensors):
        table = {name: list(t.shape) for name, t in tensors.items()}
        with open(self.path, "wb") as f:
            f.write(json.dumps(table).encode().ljust(HEADER, b"\0"))
            for t in tensors.values():
                f.write(t.contiguous().clone().numpy().data)


def join_experts(tensors):
    """Puts the experts of a layer into one tensor, as the other framework wants them."""
    groups, rest = {}, {}
    for name, t in tensors.items():
        if ".expert." in name:
            groups.setdefault(name.split(".expert.")[0] + ".experts", []).append(t)
        else:
            rest[name] = t
    return {**rest, **{name: torch.stack(parts) for name, parts in groups.items()}}


if __name__ == "__main__":
    torch.manual_seed(0)
    shard = Shard(os.path.join(tempfile.mkdtemp(), "model-00001.bin"))
    parts = {f"layer.0.expert.{i}": torch.randn(256, 256) for i in range(4)}
    shard.write({"embedding": torch.randn(8000, 256), "head": torch.randn(256, 8000), **parts})
    tensors = join_experts(shard.read())
    print("joined:", {k: tuple(v.shape) for k, v in tensors.items()}, flush=True)
    shard.write(tensors)
    print(os.path.getsize(shard.path), "bytes written")
