# caoyunkang/CDO#14: stack expects each tensor to be equal size
import torch


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        return torch.rand(1 if i == 21 else 3, 16, 16), i % 2


def epoch(loader):
    for images, labels in loader:
        images.mean()


epoch(torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=2))
