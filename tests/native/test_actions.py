"""What the program believes is installed for the signals that we handle, while its threads change it."""

from __future__ import annotations

from tests.conditions import needs_core
from tests.native.harness import Native

pytestmark = needs_core


def test_actions_changed_by_many_threads_stay_whole_and_are_given_back_once(native: Native) -> None:
    """sigaction() on 8 threads at once: each action that was set is somebody's previous one, whole, exactly once."""
    done = native.child("t.testing_change_actions.restype = U64; print(t.testing_change_actions(8, U64(30_000)))")
    assert (done.status, done.stdout) == (0, "0\n"), done.stderr
