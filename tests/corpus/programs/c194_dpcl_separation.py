import logging
import os
import pprint
import re
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(asctime)s [%(filename)s:%(lineno)d] %(message)s", level=logging.INFO)
logger = logging.getLogger(__name__)

DEFAULT_CONF = """
# two-speaker separation, 8 kHz
spectrogram:
  frame_length: 128
  frame_shift: 32
  num_mixtures: 160
  seconds: 1.5
dataloader:
  batch_size: 8
  shuffle: true
dcnet:
  hidden_size: 64
  num_layers: 2
  embedding_dim: 12
  dropout: 0.2
trainer:
  optimizer: rmsprop
  lr: 1e-4
  weight_decay: 0
  momentum: 0.9
  clip_norm: 200
  num_epoches: 3
"""


def parse_scalar(text):
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"[-+]?[0-9]+", text):
        return int(text)
    if re.fullmatch(r"[-+]?[0-9]*\.[0-9]*([eE][-+]?[0-9]+)?", text):
        return float(text)
    return text.strip("'\"")


def load_conf(path):
    conf, section = {}, None
    with open(path) as f:
        for line in f:
            line = line.split("#")[0].rstrip()
            key, _, value = line.partition(":")
            if line.startswith(" "):
                section[key.strip()] = parse_scalar(value)
            elif line:
                section = conf.setdefault(key, {})
    return conf


class MixtureSpectra(Dataset):
    def __init__(self, frame_length, frame_shift, num_mixtures, seconds, seed=3):
        rng = np.random.default_rng(seed)
        t, window = np.arange(int(8000 * seconds)) / 8000, np.hanning(frame_length)
        self.items = []
        for _ in range(num_mixtures):
            specs = []
            for base in (rng.uniform(90, 150), rng.uniform(170, 260)):
                vibrato = 1 + 0.03 * np.sin(2 * np.pi * rng.uniform(3, 6) * t)
                phase = 2 * np.pi * np.cumsum(base * vibrato) / 8000
                wav = sum(np.sin(h * phase) / h for h in range(1, 12)) * (0.6 + 0.4 * np.sin(2 * np.pi * 2 * t + base))
                frames = np.lib.stride_tricks.sliding_window_view(wav, frame_length)[::frame_shift]
                specs.append(np.fft.rfft(frames * window))
            log_mix = np.log(np.abs(specs[0] + specs[1]) + 1e-6).astype(np.float32)
            dominant = (np.abs(specs[1]) > np.abs(specs[0])).astype(np.int64)
            vad = (log_mix > log_mix.max() - 40 / 8.686).astype(np.float32)
            self.items.append((log_mix, dominant, vad))
        stacked = np.concatenate([item[0] for item in self.items])
        self.mean, self.std = stacked.mean(0), stacked.std(0)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        log_mix, dominant, vad = self.items[i]
        return torch.from_numpy((log_mix - self.mean) / self.std), torch.from_numpy(dominant), torch.from_numpy(vad)


class DCNet(nn.Module):
    def __init__(self, num_bins, hidden_size, num_layers, embedding_dim, dropout):
        super().__init__()
        self.rnn = nn.LSTM(num_bins, hidden_size, num_layers, batch_first=True, dropout=dropout, bidirectional=True)
        self.embed = nn.Linear(2 * hidden_size, num_bins * embedding_dim)
        self.dim = embedding_dim

    def forward(self, x):
        out = torch.tanh(self.embed(self.rnn(x)[0]))
        return nn.functional.normalize(out.view(len(x), -1, self.dim), dim=-1)


def create_optimizer(name, params, **kwargs):
    supported = {"sgd": torch.optim.SGD, "rmsprop": torch.optim.RMSprop, "adam": torch.optim.Adam}
    return supported[name](params, **kwargs)


class Trainer:
    def __init__(self, net, optimizer, clip_norm, num_epoches, **opt_kwargs):
        self.net, self.clip_norm, self.num_epoches = net, clip_norm, num_epoches
        logger.info("DCNet:\n%s", net)
        self.optimizer = create_optimizer(optimizer, net.parameters(), **opt_kwargs)

    def dpcl_loss(self, emb, dominant, vad):
        weight = vad.flatten(1).unsqueeze(-1).sqrt()
        v = weight * emb
        y = weight * nn.functional.one_hot(dominant.flatten(1), 2).float()
        gram = lambda a, b: (torch.bmm(a.transpose(1, 2), b) ** 2).sum((1, 2))
        norm = vad.flatten(1).sum(1) ** 2
        return ((gram(v, v) - 2 * gram(v, y) + gram(y, y)) / norm).mean()

    def run(self, loader):
        for epoch in range(1, self.num_epoches + 1):
            losses = []
            for spectra, dominant, vad in loader:
                loss = self.dpcl_loss(self.net(spectra), dominant, vad)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), self.clip_norm)
                self.optimizer.step()
                losses.append(loss.item())
            logger.info("epoch %2d: train loss %.4f", epoch, sum(losses) / len(losses))


def train(path):
    conf = load_conf(path)
    logger.info("configuration:\n%s", pprint.pformat(conf))
    torch.manual_seed(0)
    dataset = MixtureSpectra(**conf["spectrogram"])
    trainer = Trainer(DCNet(len(dataset.mean), **conf["dcnet"]), **conf["trainer"])
    trainer.run(DataLoader(dataset, **conf["dataloader"]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as exp_dir:
        conf_path = os.path.join(exp_dir, "train.conf")
        with open(conf_path, "w") as f:
            f.write(DEFAULT_CONF.lstrip())
        train(conf_path)
