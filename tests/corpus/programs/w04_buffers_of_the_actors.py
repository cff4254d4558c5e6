import torch
import torch.multiprocessing as mp
from torch import nn

mp.set_sharing_strategy("file_system")

UNROLL_LENGTH = 4
NUM_BUFFERS = 8192
OBSERVATION = (4,)
NUM_ACTIONS = 6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.Linear(OBSERVATION[0], 32)
        self.policy = nn.Linear(32, NUM_ACTIONS)
        self.baseline = nn.Linear(32, 1)

    def forward(self, frame):
        x = torch.relu(self.core(frame))
        return self.policy(x), self.baseline(x)


def create_buffers(num_buffers):
    T = UNROLL_LENGTH
    specs = dict(
        frame=dict(size=(T + 1, *OBSERVATION), dtype=torch.float32),
        reward=dict(size=(T + 1,), dtype=torch.float32),
        done=dict(size=(T + 1,), dtype=torch.bool),
        episode_return=dict(size=(T + 1,), dtype=torch.float32),
        episode_step=dict(size=(T + 1,), dtype=torch.int32),
        policy_logits=dict(size=(T + 1, NUM_ACTIONS), dtype=torch.float32),
        baseline=dict(size=(T + 1,), dtype=torch.float32),
        last_action=dict(size=(T + 1,), dtype=torch.int64),
        action=dict(size=(T + 1,), dtype=torch.int64),
    )
    buffers = {key: [] for key in specs}
    for _ in range(num_buffers):
        for key in buffers:
            buffers[key].append(torch.zeros(**specs[key]).share_memory_())
    return buffers


def train():
    model = Net()
    model.share_memory()
    buffers = create_buffers(NUM_BUFFERS)
    print(f"created {len(buffers['frame'])} buffers", flush=True)
    logits, baseline = model(torch.stack(buffers["frame"][:32]))
    (logits.logsumexp(-1).mean() + baseline.square().mean()).backward()


if __name__ == "__main__":
    train()
