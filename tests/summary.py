#!/usr/bin/env python3
"""Adds up the results of tests/run.sh: prints each skip and failure, then the one closing line."""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def junit_cases(path):
    """Yields (state, name, reason) for each test case of a JUnit file."""
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            name = f"{suite.get('name')}: {case.get('classname') or ''}.{case.get('name')}"
            if case.find("failure") is not None or case.find("error") is not None:
                yield "failed", name, ""
            elif (skip := case.find("skipped")) is not None:
                reason = skip.get("message") or skip.text or case.findtext("system-out") or suite.findtext("system-out")
                yield "skipped", name, " ".join((reason or "").split())[-300:]
            else:
                yield "passed", name, ""


def single_cases(path):
    """Yields the same for the lines that run.sh wrote itself."""
    for line in path.read_text().splitlines():
        state, name, *reason = line.split(" ", 2)
        yield state, name, reason[0] if reason else ""


def main():
    results = pathlib.Path(sys.argv[1])
    cases = []
    for path in sorted(results.glob("*.xml")):
        cases += junit_cases(path)
    if (results / "single.txt").exists():
        cases += single_cases(results / "single.txt")
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for state, name, reason in cases:
        count[state] += 1
        if state != "passed":
            print(f"{state}: {name}" + (f" ({reason})" if reason else ""))
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    # No test at all is a failure: something was not built or not found.
    return 0 if count["failed"] == 0 and count["passed"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
