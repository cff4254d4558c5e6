# catalyst-team/catalyst#1024: Can't pickle local object
import torch


class Images(torch.utils.data.Dataset):
    def __init__(self, scale):
        self.transform = lambda x: x * scale

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return self.transform(torch.ones(3))


def main():
    loader = torch.utils.data.DataLoader(Images(2.0), num_workers=1, multiprocessing_context="spawn")
    for batch in loader:
        print(batch)


if __name__ == "__main__":
    main()
