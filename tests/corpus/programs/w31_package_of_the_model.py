import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


class DeepSpeech(nn.Module):
    def __init__(self, rnn_hidden_size=32, nb_layers=2, labels="_'abc "):
        super().__init__()
        self.version = "0.0.1"
        self.hidden_size = rnn_hidden_size
        self.hidden_layers = nb_layers
        self.labels = labels
        self.rnn = nn.GRU(20, rnn_hidden_size, nb_layers, batch_first=True)
        self.fc = nn.Linear(rnn_hidden_size, len(labels))

    def forward(self, spectrograms):
        return self.fc(self.rnn(spectrograms)[0]).log_softmax(-1)

    @staticmethod
    def serialize(model, optimizer=None, epoch=None):
        package = {
            "version": model.version,
            "hidden_size": model.hidden_size,
            "hidden_layers": model.hidden_layers,
            "labels": model.labels,
            "state_dict": model.state_dict(),
        }
        if optimizer is not None:
            package["optim_dict"] = optimizer.state_dict()
        if epoch is not None:
            package["epoch"] = epoch + 1
        return package


def main():
    dist.init_process_group("gloo")
    main_proc = dist.get_rank() == 0
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(DeepSpeech())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    criterion = nn.CTCLoss()
    with tempfile.TemporaryDirectory() as save_folder:
        for epoch in range(3):
            for _ in range(4):
                out = model(torch.randn(4, 30, 20)).transpose(0, 1)
                targets = torch.randint(1, 6, (4, 8))
                sizes, target_sizes = torch.full((4,), 30), torch.full((4,), 8)
                loss = criterion(out, targets, sizes, target_sizes)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if main_proc:
                file_path = os.path.join(save_folder, f"deepspeech_{epoch + 1}.pth")
                torch.save(DeepSpeech.serialize(model, optimizer=optimizer, epoch=epoch), file_path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
