"""unittest_results.py FILE EVERY NAME...: runs every EVERY-th of the named tests.

Appends a line of JSON as each begins and ends.
"""

import json
import sys
import unittest


class Results(unittest.TestResult):
    """Written at once: the process may die in the next test."""

    def __init__(self, file):
        super().__init__()
        self.file = file
        self.buffer = False

    def note(self, test, result):
        self.file.write(json.dumps([str(test), result]) + "\n")
        self.file.flush()

    def startTest(self, test):  # noqa: N802
        super().startTest(test)
        self.note(test, "died")

    def addSuccess(self, test):  # noqa: N802
        self.note(test, "passed")

    def addFailure(self, test, err):  # noqa: N802
        super().addFailure(test, err)
        self.note(test, "failed")

    def addError(self, test, err):  # noqa: N802
        super().addError(test, err)
        self.note(test, "error: " + err[0].__name__)

    def addSkip(self, test, reason):  # noqa: N802
        self.note(test, "skipped")

    def addExpectedFailure(self, test, err):  # noqa: N802
        self.note(test, "failed as expected")

    def addUnexpectedSuccess(self, test):  # noqa: N802
        self.note(test, "passed unexpectedly")

    def addSubTest(self, test, subtest, err):  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(subtest, "failed")


def tests_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def main():
    path, every, *names = sys.argv[1:]
    every = int(every)
    sys.argv[1:] = []
    loaded = unittest.defaultTestLoader.loadTestsFromNames(names)
    with open(path, "a", encoding="utf-8") as file:
        results = Results(file)
        if every == 1:
            loaded.run(results)
        else:
            unittest.TestSuite(list(tests_of(loaded))[::every]).run(results)
    for test, trace in [*results.failures, *results.errors]:
        print(test, trace, file=sys.stderr)
    sys.exit(not results.wasSuccessful())


if __name__ == "__main__":
    main()
