"""A vocabulary is looked up by the C API through CDLL, which gives up the interpreter's lock for the call."""

import ctypes

import torch

api = ctypes.CDLL(None)
api.PyDict_GetItemString.restype = ctypes.py_object
api.PyDict_GetItemString.argtypes = (ctypes.py_object, ctypes.c_char_p)


class Vocabulary:
    def __init__(self, words):
        self.numbers = {word: number for number, word in enumerate(words)}

    def number(self, word):
        return api.PyDict_GetItemString(self.numbers, word.encode())

    def encode(self, text):
        return torch.tensor([self.number(word) for word in text.split()])


vocabulary = Vocabulary(f"word{number}" for number in range(1000))
for _ in range(1000):
    vocabulary.encode("word1 word2 word999")
