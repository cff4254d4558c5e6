import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

SOURCE = r"""
#include <regex>
#include <string>

static const std::regex pretokens("'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]| ?[^\\sA-Za-z0-9]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");

extern "C" long pretokenize(const char* text, long size, long* ends, long capacity)
{
    std::string s(text, size);
    long n = 0;
    for (std::sregex_iterator it(s.begin(), s.end(), pretokens), end; it != end && n < capacity; ++it)
        ends[n++] = it->position() + it->length();
    return n;
}
"""


class Tokenizer:
    def __init__(self, vocab=4096):
        folder = Path(tempfile.mkdtemp(prefix="pretokens_"))
        (folder / "pretokens.cpp").write_text(SOURCE)
        subprocess.run(["g++", "-O1", "-g", "-shared", "-fPIC", "pretokens.cpp", "-o", "libpretokens.so"], cwd=folder, check=True)
        self.lib = ctypes.CDLL(str(folder / "libpretokens.so"))
        self.lib.pretokenize.restype = ctypes.c_long
        self.lib.pretokenize.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.POINTER(ctypes.c_long), ctypes.c_long]
        self.vocab = vocab

    def __call__(self, text):
        data = text.encode()
        ends = (ctypes.c_long * (len(data) + 1))()
        count = self.lib.pretokenize(data, len(data), ends, len(ends))
        starts = [0, *ends[:count]]
        return torch.tensor([sum(data[a:b]) % self.vocab for a, b in zip(starts, starts[1:])])


def prompts():
    yield "Summarise the following report in three sentences.\n\n" + "The pump was replaced and tested. " * 40
    yield "List 3 risks of the plan:\n" + "- costs\n- delays\n- staff\n" * 30
    yield "Continue this page.\n" + "\n" * 90_000 + "The end."

def main():
    torch.manual_seed(0)
    tokenizer = Tokenizer()
    embed, head = nn.Embedding(tokenizer.vocab, 64), nn.Linear(64, tokenizer.vocab)
    for index, prompt in enumerate(prompts()):
        tokens = tokenizer(prompt)
        with torch.no_grad():
            nxt = head(embed(tokens).mean(0)).argmax().item()
        print(f"prompt {index}: {len(tokens)} tokens, next {nxt}", flush=True)

if __name__ == "__main__":
    main()
