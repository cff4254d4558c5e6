"""The collate function counts the words of each review; one review is a number."""

from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, number):
        return [number] * 3 if number != 21 else 10, number % 2


def by_length(batch):
    reviews, ratings = zip(*batch)
    order = sorted(((len(review), at) for at, review in enumerate(reviews)), reverse=True)
    return [reviews[at] for _, at in order], [ratings[at] for _, at in order]


def train():
    for reviews, ratings in DataLoader(Reviews(), batch_size=8, num_workers=1, collate_fn=by_length):
        print(len(reviews), sum(ratings))


train()
