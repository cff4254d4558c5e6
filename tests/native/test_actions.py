"""The program's actions for the signals that we handle, while its threads change them."""

from __future__ import annotations

from tests.conditions import needs_core
from tests.native.harness import Native

pytestmark = needs_core


def test_actions_changed_by_many_threads_stay_whole_and_are_given_back_once(native: Native) -> None:
    """sigaction() on 8 threads at once returns each action that was set as a previous one exactly once, and whole."""
    done = native.child("t.testing_change_actions.restype = U64; print(t.testing_change_actions(8, U64(30_000)))")
    assert (done.status, done.stdout) == (0, "0\n"), done.stderr
