"""DataLoaders of datasets whose length is unknown, or costs something to ask for."""

from torch.utils.data import DataLoader, Dataset, IterableDataset


class Unsized(Dataset):
    """As Keras has them."""

    def __len__(self):
        raise TypeError("object of type 'Unsized' has no len()")

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    """Counts by reading everything."""

    def __len__(self):
        print("counted")
        return 8

    def __iter__(self):
        return iter(range(8))


DataLoader(Unsized(), shuffle=False)
for item in DataLoader(Stream(), batch_size=None):  # list() would ask for the length
    print(item)
DataLoader(range(5))
