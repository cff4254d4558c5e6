import io

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class Transformer(nn.Module):
    def __init__(self, vocab=128, dim=64, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, dim * 2, dropout=0.0, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        h = self.embed(ids)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


class ObjectStore:
    def __init__(self):
        self.objects = {}

    def put(self, key, state):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.objects[key] = buffer.getvalue()


def save_checkpoint(model, store, key):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    store.put(key, state)
    print(f"saved {len(state)} tensors to {key}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Transformer()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    store = ObjectStore()
    for step in range(1, 21):
        ids = torch.randint(0, 128, (2, 17))
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            save_checkpoint(model, store, f"step_{step}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
