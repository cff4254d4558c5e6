"""Speech enhancement: shrink the recurrent layer of a trained mask estimator, then run it on a stream."""
import torch
import torch.nn as nn

N_FREQ = 257


class MaskEstimator(nn.Module):
    def __init__(self, hidden=2048):
        super().__init__()
        self.encoder = nn.Linear(N_FREQ, 256)
        self.lstm = nn.LSTM(256, hidden, batch_first=True)
        self.mask = nn.Linear(hidden, N_FREQ)

    def forward(self, spec):
        h, _ = self.lstm(torch.relu(self.encoder(spec)))
        return torch.sigmoid(self.mask(h)) * spec


def important_units(lstm, keep):
    score = lstm.weight_hh_l0.detach().abs().sum(dim=0)
    return score.topk(keep).indices.sort().values


def prune_lstm(lstm, keep):
    units = important_units(lstm, keep)
    rows = torch.cat([units + gate * lstm.hidden_size for gate in range(4)])
    with torch.no_grad():
        lstm.weight_ih_l0 = nn.Parameter(lstm.weight_ih_l0[rows].clone())
        lstm.weight_hh_l0 = nn.Parameter(lstm.weight_hh_l0[rows][:, units].clone())
        lstm.bias_ih_l0 = nn.Parameter(lstm.bias_ih_l0[rows].clone())
        lstm.bias_hh_l0 = nn.Parameter(lstm.bias_hh_l0[rows].clone())
    return units


def prune(model, keep=512):
    units = prune_lstm(model.lstm, keep)
    model.mask.weight = nn.Parameter(model.mask.weight.detach()[:, units].clone())
    model.mask.in_features = keep
    return model


def enhance(model, chunks):
    model.eval()
    out = []
    with torch.no_grad():
        for chunk in chunks:
            out.append(model(chunk))
    return torch.cat(out, dim=1)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = MaskEstimator()
    stream = [torch.rand(1, 100, N_FREQ) for _ in range(4)]
    print("before pruning:", sum(p.numel() for p in model.parameters()), "parameters,",
          tuple(enhance(model, stream).shape))
    prune(model)
    print("after pruning:", sum(p.numel() for p in model.parameters()), "parameters")
    print("enhanced:", tuple(enhance(model, stream).shape))
