import datetime
import os
import tempfile
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn


class LanguageModel(nn.Module):
    def __init__(self, words=200, dim=32):
        super().__init__()
        self.emb = nn.Embedding(words, dim)
        self.body = nn.GRU(dim, dim, batch_first=True)
        self.output = nn.Linear(dim, words)

    def features(self, ids):
        return self.body(self.emb(ids))[0]


class RewardModel(LanguageModel):
    """Scores answers; begins from a language model that was tuned before."""

    def __init__(self):
        super().__init__()
        del self.output
        self.score = nn.Linear(32, 1)

    def forward(self, ids):
        return self.score(self.features(ids)[:, -1])


class Checkpointer:
    def __init__(self, folder):
        self.folder = folder

    def save(self, model, step):
        dcp.save({"model": model.state_dict(), "step": step}, checkpoint_id=os.path.join(self.folder, f"step-{step}"))

    def restore(self, model, step):
        state = {"model": model.state_dict(), "step": 0}
        dcp.load(state, checkpoint_id=os.path.join(self.folder, f"step-{step}"))
        missing, unexpected = model.load_state_dict(state["model"], strict=False)
        return state["step"], missing


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=15))
    place = [tempfile.mkdtemp()]
    dist.broadcast_object_list(place, src=0)
    checkpointer = Checkpointer(place[0])
    torch.manual_seed(0)
    checkpointer.save(LanguageModel(), step=100)
    dist.barrier()
    model = RewardModel()
    step, missing = checkpointer.restore(model, step=100)
    if dist.get_rank() == 0:
        print("from step", step, "new:", missing, flush=True)
    print(model(torch.randint(0, 200, (4, 12))).mean().item())
    dist.destroy_process_group()


main()
