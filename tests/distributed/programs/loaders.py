"""Data sets of all kinds, loaded by one worker each."""

import sys

from torch.utils.data import DataLoader, Dataset, IterableDataset


class Numbers(Dataset):
    """Sample n is n."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index


class Words(Numbers):
    """Keys are words."""


class Stream(IterableDataset):
    """Four samples without indices."""

    def __iter__(self):
        return iter([1, 2, 1, 2])


class Bad(Numbers):
    """Every sample raises."""

    def __getitem__(self, index):
        raise ValueError(index)


def main():
    more = {"num_workers": 1, "multiprocessing_context": sys.argv[1]}
    batches = [sum(b) for b in DataLoader(Numbers(), batch_size=4, collate_fn=list, **more)]
    single = list(DataLoader(Numbers(), batch_size=None, sampler=range(3), **more))
    stream = [sum(b) for b in DataLoader(Stream(), batch_size=2, collate_fn=list, **more)]
    words = ["".join(b) for b in DataLoader(Words(), batch_sampler=[["a", "b"]], collate_fn=list, **more)]
    print(batches, single, stream, words)
    try:
        list(DataLoader(Bad(), batch_sampler=[[0]], **more))  # one batch: nothing is being loaded when it ends
    except ValueError as error:
        print(type(error).__name__)


if __name__ == "__main__":
    main()
