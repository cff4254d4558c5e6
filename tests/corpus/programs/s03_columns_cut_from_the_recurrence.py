import torch
import torch.nn as nn

torch.manual_seed(0)


class Transcriber(nn.Module):
    def __init__(self, mels=80, hidden=2048, letters=32):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(mels, 128), nn.ReLU())
        self.rnn = nn.LSTM(128, hidden, batch_first=True)
        self.head = nn.Linear(hidden, letters)

    def forward(self, mel):
        out, _ = self.rnn(self.front(mel))
        return self.head(out)


def importance(w):
    return w.abs().sum(0)


def shrink_inputs(w, share):
    """Keeps the columns of a weight that matter most."""
    keep = importance(w).topk(int(w.shape[1] * share)).indices.sort().values
    return w[:, keep].contiguous()


def compress(model, share):
    before = sum(p.numel() for p in model.parameters())
    for name, p in model.rnn.named_parameters():
        if name.startswith("weight_hh"):
            p.data = shrink_inputs(p.data, share)
    after = sum(p.numel() for p in model.parameters())
    print(f"{before} parameters, now {after}", flush=True)
    return model


def transcribe(model, mel):
    with torch.inference_mode():
        return model(mel).argmax(-1)


if __name__ == "__main__":
    model = Transcriber().eval()
    clip = torch.randn(1, 12, 80)
    print("full:", transcribe(model, clip)[0, :6].tolist(), flush=True)
    small = compress(model, share=1 / 64)
    print("small:", transcribe(small, clip)[0, :6].tolist(), flush=True)
