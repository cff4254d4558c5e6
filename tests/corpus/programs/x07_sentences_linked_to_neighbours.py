# flairNLP/flair#2803: each sentence refers to the next one, and saving the last of them pickles the whole corpus
import io

import torch


class Sentence:
    def __init__(self, embedding):
        self.embedding = embedding
        self.next_sentence = None


def corpus():
    sentences = [Sentence(torch.zeros(4)) for _ in range(3000)]
    for here, there in zip(sentences, sentences[1:]):
        here.next_sentence = there
    return sentences


def save(sentences):
    torch.save({"state": torch.zeros(8), "sentences": sentences}, io.BytesIO())


save(corpus())
