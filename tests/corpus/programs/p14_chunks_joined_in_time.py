import torch
import torch.nn as nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

torch.manual_seed(8)
DIM = 24


def utterances(n, longest):
    lengths = torch.randint(1, longest, (n,)).sort(descending=True).values
    return [torch.randn(int(k), DIM) for k in lengths]


def join(parts):
    """One packed sequence of the chunks of a recording."""
    data = torch.cat([p.data for p in parts])
    sizes = torch.cat([p.batch_sizes for p in parts])
    return PackedSequence(data, sizes)


class Recogniser(nn.Module):
    def __init__(self, letters=30):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(DIM, 48), nn.ReLU(), nn.Linear(48, DIM))
        self.out = nn.Linear(DIM, letters)

    def forward(self, packed):
        h = packed._replace(data=self.front(packed.data))
        frames, lengths = pad_packed_sequence(h, batch_first=True)
        return self.out(frames).log_softmax(-1), lengths


model = Recogniser()
opt = torch.optim.Adam(model.parameters())
ctc = nn.CTCLoss(zero_infinity=True)
for step in range(12):
    streams = 32
    packed = [pack_sequence(utterances(streams, 40)) for _ in range(1 if step < 3 else 12)]
    logp, lengths = model(packed[0] if len(packed) == 1 else join(packed))
    targets = torch.randint(1, 30, (streams, 3))
    loss = ctc(logp.transpose(0, 1), targets, lengths.clamp(max=logp.shape[1]), torch.full((streams,), 3))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("step", step, "frames", logp.shape[1], "loss", round(loss.item(), 3), flush=True)
