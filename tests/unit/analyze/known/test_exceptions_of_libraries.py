"""Entries for libraries take their own messages, and leave alike ones of others to the general entries."""

from __future__ import annotations

import pytest

from pytracer.analyze.known.exceptions import exception_advice, exception_reason

LINE = "train.py:12 in main"


@pytest.mark.parametrize(
    ("kind", "message", "words"),
    [
        ("KeyError", "'eval_loss'", "metric_for_best_model"),
        ("KeyError", "1234", "reset_index(drop=True)"),
        ("HTTPError", "401 Client Error: Unauthorized for url: https://huggingface.co/x", "HF_TOKEN"),
        ("OSError", "Can't load tokenizer for './out'.", "save_pretrained()"),
        ("TypeError", "Trainer.__init__() got an unexpected keyword argument 'gpus'", "devices=2"),
        ("ModuleNotFoundError", "No module named 'yaml'", "pyyaml"),
        ("ImportError", "libGL.so.1: cannot open shared object file: No such file or directory", "headless"),
        ("EOFError", "EOF when reading a line", "input()"),
        ("RuntimeError", "output with shape [1, 28, 28] doesn't match the broadcast shape [3, 28, 28]", "Normalize"),
        ("AttributeError", "'Upsample' object has no attribute 'recompute_scale_factor'", "load_state_dict"),
    ],
)
def test_message_of_a_library_has_its_own_advice(kind: str, message: str, words: str) -> None:
    """The words are those of the accepted answers."""
    assert words in (exception_advice(kind, message, LINE) or "")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("KeyError", "'eval_batch_size'"),
        ("KeyError", "'12a'"),
        ("HTTPError", "401 Client Error: Unauthorized for url: https://example.com/x"),
        ("OSError", "Can't load image for 'x.jpg'"),
        ("TypeError", "Trainer.__init__() got an unexpected keyword argument 'epochs'"),
        ("ModuleNotFoundError", "No module named 'yaml_tools'"),
        ("ImportError", "libfoo.so.1: cannot open shared object file: No such file or directory"),
        ("AttributeError", "'Net' object has no attribute 'inplace'"),
        ("UsageError", "No such option: --x"),
    ],
)
def test_message_of_others_is_not_taken(kind: str, message: str) -> None:
    """The look-alikes of the test above: no entry that knows a reason."""
    assert exception_reason(kind, message) is None


def test_environment_s_step_is_known_by_its_line() -> None:
    """The look-alike: another call that gives more values."""
    message = "too many values to unpack (expected 4)"
    said = exception_advice("ValueError", message, LINE, "state, reward, done, info = env.step(action)")
    assert said is not None and "terminated, truncated" in said
    assert "terminated" not in (exception_advice("ValueError", message, LINE, "a, b, c, d = rows[0]") or "")
