"""Runs every test of this directory as PID 1's guest, and writes report, lines, verdict and journal
to /results. Tests run in the order of MODULES: the first installs, the others use what it made.
"""

import pathlib
import subprocess
import sys
import unittest

RESULTS = pathlib.Path("/results")
HERE = pathlib.Path(__file__).parent
MODULES = ["install", "activation", "restart", "watchdog", "configuration", "journal", "sandbox", "user_unit"]


class Result(unittest.TextTestResult):
    """Also one line per test, for the sum at the end of tests/run.sh."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lines = []

    def _line(self, state, test, reason=""):
        name = "systemd." + ".".join(test.id().split(".")[-2:])
        self.lines.append(f"{state} {name} {reason}".rstrip())

    def addSuccess(self, test):
        super().addSuccess(test)
        self._line("passed", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._line("skipped", test, reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._line("failed", test)

    def addError(self, test, err):
        super().addError(test, err)
        self._line("failed", test)


def cases(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases(item)
        else:
            yield item


def main():
    selection = (HERE / "selection").read_text().split()
    chosen = unittest.TestSuite()
    for module in MODULES:
        for case in cases(unittest.defaultTestLoader.loadTestsFromName(module)):
            name = case.id().split(".", 1)[-1]
            if not selection or module == "install" or any(name == s or name.startswith(s + ".") for s in selection):
                chosen.addTest(case)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Result)
    result = runner.run(chosen)
    (RESULTS / "lines").write_text("".join(line + "\n" for line in result.lines))
    with open(RESULTS / "journal", "w", encoding="utf-8") as journal:
        subprocess.run(["journalctl", "--no-pager", "-o", "short-precise"], stdout=journal, check=False)
    passed = result.wasSuccessful() and result.testsRun > 0
    (RESULTS / "verdict").write_text("passed" if passed else "failed")


if __name__ == "__main__":
    main()
