"""Why a loop may not end, by its source; the look-alikes come to their end, or nothing is known."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.endless import reason_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.syntax.unbounded import Reason, catches_all_tries, loops_at, not_entered_again

DRAWS = """\
def negative(self, seen):
    item = random.randint(1, self.n - 1)
    while item in seen:
        item = {draw}
    return item
"""
LEAVES = """\
def negative(self, u):
    while True:
        item = random.randrange(self.n)
        if item not in self.near[u]:
            break
    return item
"""
SKIPS = """\
def batches(rows):
    at = 0
    while at < len(rows):
        row = rows[at]
        if not row:
            {before}
            continue
        use(row)
        at += 1
"""
PACKS = """\
def pack(items, room):
    left = list(items)
    while left:
        for item in list(left):
            if len(item) <= room:
                left.remove(item)
        {also}
"""
SECOND_PASS = """\
def batches(paths, first):
    at = first
    while True:
        {again}
        while at < len(paths):
            yield read(paths[at])
            at += 1
"""
ROWS = """\
def rows(path):
    lines = {made}
    while True:
        for line in lines:
            yield line
"""
TRIES = """\
def fetch(path):
    {head}:
        try:
            return load(path)
        except OSError:
            {handled}
"""


def reason(source: str, line: int) -> Reason | None:
    tree = ast.parse(source)
    scope = scope_of(tree, line)
    return reason_of(scope, loops_at(scope, line)[0], line)


def test_a_draw_until_something_fits_is_named_with_what_it_is_compared_with() -> None:
    found = reason(DRAWS.format(draw="random.randint(1, self.n - 1)"), 4)
    assert found is not None and not found.sure
    assert "line 4 draws at random" in found.words and "until `item in seen` is false" in found.words
    assert "`len(set(seen))`" in found.advice


def test_a_number_of_different_draws_is_compared_with_what_there_is() -> None:
    source = "def pick(self, pool):\n    got = set()\n    while len(got) < self.k:\n        got.add({})\n"
    found = reason(source.format("random.choice(pool)"), 4)
    assert found is not None and "where there are fewer different values to draw than that" in found.words
    assert "with `self.k`" in found.advice
    assert reason(source.format("next(pool)"), 4) is None


def test_what_is_made_of_a_draw_is_drawn() -> None:
    source = "def pick(seen):\n    while True:\n        x = rng.random()\n        key = f(x)\n        if key in seen:\n"
    found = reason(source + "            return key\n", 3)
    assert found is not None and "line 4 makes `key` of what is drawn at random until `key in seen`" in found.words


def test_a_value_that_moves_on_is_not_drawn() -> None:
    """The look-alike: the next free number is found in the end."""
    assert reason(DRAWS.format(draw="item + 1"), 4) is None


def test_the_only_if_that_leaves_is_the_condition() -> None:
    found = reason(LEAVES, 3)
    assert found is not None and "until `item not in self.near[u]` (line 4) is true" in found.words
    assert reason(LEAVES + "# two ways\n".replace("# two", "# one"), 3) is not None
    two = LEAVES.replace("            break", "            break\n        if done():\n            return None")
    assert reason(two, 3) is None


def test_a_continue_before_the_counter_is_named() -> None:
    found = reason(SKIPS.format(before="log(row)"), 4)
    assert found is not None and "the `continue` of line 7 comes before `at += 1` (line 9)" in found.words


def test_a_counter_that_moves_on_before_the_continue_is_not() -> None:
    assert reason(SKIPS.format(before="at += 1"), 4) is None


def test_what_shrinks_only_below_an_if_is_named() -> None:
    found = reason(PACKS.format(also="room = room"), 5)
    assert found is not None and "`left` changes only at line 6" in found.words
    assert "`len(item) <= room` (line 5)" in found.words


@pytest.mark.parametrize("also", ["left.pop()", "shrink(left)"])
def test_what_may_shrink_elsewhere_is_not(also: str) -> None:
    assert reason(PACKS.format(also=also), 5) is None


def test_an_unchanged_variable_of_the_function_is_sure() -> None:
    found = reason("def go(n):\n    tries = 0\n    while tries < n:\n        load(n)\n", 4)
    assert found is not None and found.sure and "nothing in it sets `tries` and `n`" in found.words


@pytest.mark.parametrize(
    "source",
    [
        "def go(n):\n    tries = 0\n    while tries < n:\n        load(n)\n        tries += 1\n",
        "def go(work):\n    while work:\n        step()\n",  # a list: step() may have it, too
        "def go(self):\n    while self.left:\n        self.step()\n",
        "def go(n):\n    tries = 0\n    while tries < n:\n        if load(n):\n            break\n        more()\n",
    ],
)
def test_what_something_may_change_is_not(source: str) -> None:
    assert reason(source, 3 if "work" in source or "self" in source else 4) is None


def test_what_others_have_to_change_is_told() -> None:
    found = reason("def go(ready, n):\n    while ready.value < n:\n        pass\n", 3)
    assert found is not None and "another thread or process has to" in found.words


def test_links_are_followed_in_a_circle() -> None:
    found = reason("def root(label):\n    while label != 0:\n        label = PARENT[label]\n", 3)
    assert found is not None and "line 3 follows `label = PARENT[label]`" in found.words


@pytest.mark.parametrize(
    ("more", "named"), [("", True), ("            if item in seen:\n                continue\n", False)]
)
def test_work_that_is_put_back_without_a_look_at_what_was_seen(more: str, named: bool) -> None:
    source = (
        "def walk(queue):\n    while queue:\n        node = queue.pop()\n        for item in G[node]:\n"
        f"{more}            queue.append(item)\n"
    )
    found = reason(source, 3)
    assert (found is not None and "nothing in it skips" in found.words) == named


def test_a_tolerance_that_is_never_met_has_no_limit() -> None:
    found = reason("def fit(x, tol):\n    err = 1.0\n    while not err < tol:\n        err = step(x)\n", 4)
    assert found is not None and "where `err` is nan, `err < tol` is never true" in found.words
    assert reason("def fit(x, tol):\n    err = 9\n    while err > tol:\n        err -= 1\n", 4) is None


@pytest.mark.parametrize(("again", "named"), [("pass", True), ("at = 0", False), ("shuffle(paths)", False)])
def test_an_index_that_is_only_set_before_the_endless_loop_ends_its_passes(again: str, named: bool) -> None:
    tree = ast.parse(SECOND_PASS.format(again=again))
    scope = scope_of(tree, 3)
    found = not_entered_again(scope, loops_at(scope, 3)[0], 3)
    assert (found is not None and found.sure and "`at` is set before it (line 2)" in found.words) == named
    assert found is None or "before line 5: `at = first`" in found.advice
    assert not_entered_again(scope, loops_at(scope, 3)[0], 6) is None  # at work in the inner one


@pytest.mark.parametrize(("made", "named"), [("csv.reader(path)", True), ("read(path)", False)])
def test_an_iterator_has_one_pass_and_a_list_many(made: str, named: bool) -> None:
    tree = ast.parse(ROWS.format(made=made))
    scope = scope_of(tree, 4)
    assert (not_entered_again(scope, loops_at(scope, 4)[-1], 4) is not None) == named


@pytest.mark.parametrize(
    ("head", "handled", "named"),
    [
        ("while True", "continue", True),
        ("for attempt in itertools.count()", "sleep(1)", True),
        ("for attempt in range(5)", "continue", False),
        ("while True", "raise", False),
    ],
)
def test_tries_without_a_limit_are_found(head: str, handled: str, named: bool) -> None:
    tree = ast.parse(TRIES.format(head=head, handled=handled))
    loops = loops_at(scope_of(tree, 4), 4)
    assert (bool(loops) and catches_all_tries(loops[0], 4) is not None) == named


def test_tokens_that_are_drawn_until_the_last_one_is_the_end_need_a_limit() -> None:
    source = "def sample(model):\n    got = [1]\n    while got[-1] != EOS:\n        got.append(draw({}))\n"
    found = reason(source.format("torch.multinomial(model(got), 1)"), 4)
    assert found is not None and "and nothing limits how much `got` gets" in found.words
    assert found.advice.startswith("Bound it: `while got[-1] != EOS and len(got) < max_length`.")


EPISODE = """\
def evaluate(env, policy):
    seen, done = env.reset(), False
    while not done:
        seen, reward, done, _ = env.step(policy(seen))
        {more}
"""


def test_episode_that_a_call_alone_ends_needs_a_limit() -> None:
    found = reason(EPISODE.format(more="total += reward"), 4)
    assert found is not None and not found.sure
    assert (
        "it ends only when line 4 (`seen, reward, done, _ = env.step(policy(seen))`) gives a `done` that is true"
        in (found.words)
    )
    assert "`for _ in range(max_steps):` with `break` on `done`" in found.advice


@pytest.mark.parametrize("more", ["done = done or late()", "if late():\n            break"])
def test_episode_that_something_else_may_end_is_no_such_loop(more: str) -> None:
    """The look-alikes."""
    found = reason(EPISODE.format(more=more), 4)
    assert found is None or "gives a `done`" not in found.words


LEFT_AT = """\
def run(env, x, tol):
    while True:
        {sets}
        if {test}:
            break
"""


@pytest.mark.parametrize(
    ("sets", "test", "words"),
    [
        ("done = env.step(x)", "done", "gives a `done` that is true"),
        ("alive = env.step(x)", "not alive", "gives a `alive` that is false"),
        ("delta = move(x)", "delta < tol", "ends only when `delta < tol` becomes true by line 3"),
        ("token = read(x)", "token == env.end", "ends only when `token` equals `env.end`"),
    ],
)
def test_loop_that_an_if_leaves_ends_where_that_is_true(sets: str, test: str, words: str) -> None:
    found = reason(LEFT_AT.format(sets=sets, test=test), 3)
    assert found is not None and words in found.words


def test_loop_that_is_left_at_another_token_is_not_told_to_wait_for_it() -> None:
    """The look-alike of `while token != end`."""
    found = reason(LEFT_AT.format(sets="token = read(x)", test="token != env.start"), 3)
    assert found is None or "equals" not in found.words


LEFT_OUT = """\
def run(self, loader):
    while self.step < self.most:
        for batch in loader:
            loss = self.model(batch)
            if not torch.isfinite(loss):
                continue
            {before}
            self.step += 1
"""


def test_batches_that_are_all_left_out_count_no_step() -> None:
    """Said only of a loop that did nothing more: work that goes on looks the same."""
    found = reason(LEFT_OUT.format(before="loss.backward()"), 4)
    assert found is not None and found.of_pause
    assert "the `continue` of line 6 comes before `self.step += 1` (line 8)" in found.words
    assert "where `not torch.isfinite(loss)` (line 5) holds" in found.words


def test_batches_of_which_something_else_counts_are_no_reason() -> None:
    """The look-alike."""
    found = reason(LEFT_OUT.format(before="self.step = done(loss)"), 4)
    assert found is None or "comes before" not in found.words


@pytest.mark.parametrize("clock", ["time.time()", "time.monotonic()", "perf_counter()", "datetime.now()"])
def test_a_clock_goes_on_by_itself(clock: str) -> None:
    """The look-alike of a flag that another thread has to set."""
    assert reason(f"def pause(end):\n    while {clock} < end:\n        pass\n", 2) is None
    assert reason("def pause(end):\n    while state.at < end:\n        pass\n", 2) is not None
