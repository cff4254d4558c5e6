import ctypes
import pathlib
import subprocess
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PHONEMES = ["AA", "AE", "AH", "AO", "AW", "AY", "B", "CH", "D", "DH", "EH", "ER", "EY", "F", "G", "HH", "IH", "IY",
            "JH", "K", "L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "T", "TH", "UH", "UW", "V", "W", "Y",
            "Z", "ZH"]
LABELS = ["_"] + PHONEMES
FEATURES = 40


class CTCBeamDecoder:
    def __init__(self, labels, beam_width=10, num_processes=4, blank_id=0):
        self._labels = "".join(labels).encode()
        self._beam_width = beam_width
        self._num_processes = num_processes
        self._blank_id = blank_id
        self._lib = self._build()

    @staticmethod
    def _build():
        src = pathlib.Path(__file__).resolve().parent / "c203_beam.cpp"
        out = pathlib.Path(tempfile.mkdtemp(prefix="ctcdecode_")) / "libctc_decode.so"
        subprocess.run(["g++", "-std=c++17", "-O1", "-g", "-shared", "-fPIC", "-pthread", str(src), "-o", str(out)],
                       check=True)
        return ctypes.CDLL(str(out))

    def decode(self, probs, seq_lens):
        probs = probs.cpu().float().contiguous()
        seq_lens = seq_lens.cpu().int().contiguous()
        batch, max_time, num_classes = probs.shape
        tokens = torch.zeros(batch, max_time, dtype=torch.int32)
        lengths = torch.zeros(batch, dtype=torch.int32)
        self._lib.beam_decode(
            ctypes.c_void_p(probs.data_ptr()), ctypes.c_void_p(seq_lens.data_ptr()), batch, max_time, num_classes,
            ctypes.c_char_p(self._labels), self._beam_width, self._num_processes, self._blank_id,
            ctypes.c_void_p(tokens.data_ptr()), ctypes.c_void_p(lengths.data_ptr()))
        return [tokens[b, :lengths[b]].tolist() for b in range(batch)]


class Utterances(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        proto = torch.randn(len(LABELS), FEATURES, generator=torch.Generator().manual_seed(0))
        self.items = []
        for _ in range(count):
            n = int(torch.randint(4, 10, (1,), generator=g))
            target = torch.randint(1, len(LABELS), (n,), generator=g)
            frames = proto[target].repeat_interleave(4, dim=0)
            self.items.append((frames + 0.3 * torch.randn(frames.shape, generator=g), target))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    feats, targets = zip(*batch)
    lens = torch.tensor([len(f) for f in feats])
    return (nn.utils.rnn.pad_sequence(feats, batch_first=True), lens, torch.cat(targets),
            torch.tensor([len(t) for t in targets]))


class AcousticModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(FEATURES, 64, bidirectional=True, batch_first=True)
        self.out = nn.Linear(128, len(LABELS))

    def forward(self, x):
        return self.out(self.rnn(x)[0])


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


def validate(model, loader, decoder):
    model.eval()
    errors = total = 0
    with torch.no_grad():
        for feats, lens, targets, target_lens in loader:
            probs = model(feats).softmax(-1)
            for hyp, ref in zip(decoder.decode(probs, lens), targets.split(target_lens.tolist())):
                errors += edit_distance(hyp, ref.tolist())
                total += len(ref)
    model.train()
    return errors / total


def main():
    torch.manual_seed(0)
    train = DataLoader(Utterances(320, 1), batch_size=16, shuffle=True, collate_fn=collate)
    dev = DataLoader(Utterances(64, 2), batch_size=16, collate_fn=collate)
    model = AcousticModel()
    decoder = CTCBeamDecoder(LABELS, beam_width=10, blank_id=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(1, 4):
        for feats, lens, targets, target_lens in train:
            log_probs = F.log_softmax(model(feats), dim=-1).transpose(0, 1)
            loss = F.ctc_loss(log_probs, targets, lens, target_lens, blank=0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: train loss {loss.item():.3f}", flush=True)
        print(f"epoch {epoch}: dev PER {validate(model, dev, decoder):.3f}", flush=True)
    print("training complete", flush=True)


if __name__ == "__main__":
    main()
