"""Runs every test of this directory as PID 1's guest, and writes report, lines, verdict and journal
to /results. Tests run in the order of the file "modules": the first installs, the others use that.
"""

import pathlib
import subprocess
import sys
import unittest

RESULTS = pathlib.Path("/results")
HERE = pathlib.Path(__file__).parent


class Result(unittest.TextTestResult):
    """Also one line per test, for the sum at the end of tests/run.sh."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lines = []

    def _line(self, state, test, reason=""):
        name = "machine." + ".".join(test.id().split(".")[-2:])
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
    modules = (HERE / "modules").read_text().split()
    chosen_file = HERE / "selection"
    selection = chosen_file.read_text().split() if chosen_file.exists() else []
    chosen = unittest.TestSuite()
    for module in modules:
        for case in cases(unittest.defaultTestLoader.loadTestsFromName(module)):
            name = case.id().split(".", 1)[-1]
            if not selection or module == modules[0] or any(name == s or name.startswith(s + ".") for s in selection):
                chosen.addTest(case)
    if selection and {case.id().split(".")[0] for case in chosen} == {modules[0]}:
        sys.exit(f"no test is called {' or '.join(selection)}")
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Result)
    result = runner.run(chosen)
    (RESULTS / "lines").write_text("".join(line + "\n" for line in result.lines))
    with open(RESULTS / "journal", "w", encoding="utf-8") as journal:
        subprocess.run(["journalctl", "--no-pager", "-o", "short-precise"], stdout=journal, check=False)
    passed = result.wasSuccessful() and result.testsRun > 0
    (RESULTS / "verdict").write_text("passed" if passed else "failed")


if __name__ == "__main__":
    main()
