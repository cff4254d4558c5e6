import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class LanguageModel(nn.Module):
    def __init__(self, vocab_size, dim=32):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 2), nn.GELU(), nn.Linear(dim * 2, dim))
        self.lm_head = nn.Linear(dim, vocab_size, bias=False)

    def forward(self, ids):
        return self.lm_head(self.mlp(self.embed_tokens(ids)))


def build(vocab_size):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = fully_shard(LanguageModel(vocab_size), mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(model, optimizer, vocab_size, steps=3):
    for _ in range(steps):
        ids = torch.randint(0, vocab_size, (4, 17))
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def save(model, optimizer, folder):
    model_state, optim_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optim_state}, checkpoint_id=folder)


def resume(model, optimizer, folder):
    model_state, optim_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optim_state}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def main():
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    checkpoint = os.path.join(folder[0], "step_3")
    tokens = [f"w{i}" for i in range(128)]
    try:
        model, optimizer = build(len(tokens))
        train(model, optimizer, len(tokens))
        save(model, optimizer, checkpoint)
        tokens += ["<think>", "</think>", "<tool>", "</tool>"]
        model, optimizer = build(len(tokens))
        resume(model, optimizer, checkpoint)
        train(model, optimizer, len(tokens))
    finally:
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder[0], ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
