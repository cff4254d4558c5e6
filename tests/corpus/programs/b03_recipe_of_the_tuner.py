import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Decoder(nn.Module):
    def __init__(self, vocab=256, dim=64, depth=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.SiLU()) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, vocab, bias=False)
        self.skip_output_layer = False

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = h + layer(h)
        h = self.norm(h)
        return h if self.skip_output_layer else self.output(h)


class LinearCrossEntropyLoss(nn.Module):
    def __init__(self, num_chunks=4):
        super().__init__()
        self.num_chunks = num_chunks

    def forward(self, weight, hidden, targets):
        total = 0.0
        for h, t in zip(hidden.chunk(self.num_chunks, dim=1), targets.chunk(self.num_chunks, dim=1)):
            logits = F.linear(h, weight)
            total = total + F.cross_entropy(logits.flatten(0, 1), t.flatten(), reduction="sum")
        return total / targets.numel()


def setup_model(mesh):
    torch.manual_seed(0)
    model = Decoder()
    for layer in [model.tok_embeddings, *model.layers, model.output]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.skip_output_layer = True
    return model


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = setup_model(mesh)
    loss_fn = LinearCrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(10):
        batch = torch.randint(0, 256, (2, 33))
        hidden = model(batch[:, :-1])
        loss = loss_fn(model.output.weight, hidden, batch[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"{step}|loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
