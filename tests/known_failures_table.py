#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the table of known failures in tests/README.md against the tests.

Every id from A01 to A81 has exactly one row, and a row names tests that are really there, each as
`TEST` in `FILE`, or says what it waits for. A test that carries an id stands in the row of that id.
"""

import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[1]
IDS = [f"A{number:02}" for number in range(1, 82)]
WAITS = {
    "cxl_storage_v1",
    "l2_storage_v1",
    "metrics",
    "the fault suite",
    "the known-failure suite",
}
# Suites whose tests are all of known failures.
WHOLE = [
    "tests/integration/known_failures/*.cc",
    "tests/python/test_known_failures.py",
    "tests/python/vllm/test_known_failures.py",
]


def names_in(path):
    """The tests that a source file defines: Suite.Name of GoogleTest, methods of unittest."""
    text = path.read_text()
    if path.suffix == ".py":
        return set(re.findall(r"^\s*def (test_\w+)\(", text, flags=re.M))
    found = re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", text)
    listed = re.findall(r'^\s*\{"(\w+)", \w+, \w+\},$', text, flags=re.M)  # of tests/capi
    return {f"{suite}.{name}" for suite, name in found} | set(listed)


def problems(table):
    rows = re.findall(r"^\| (A\d+) \| (.*?) \| (.*?) \|$", table, flags=re.M)
    listed = [row[0] for row in rows]
    for missing in sorted(set(IDS) - set(listed)):
        yield f"{missing} has no row"
    for name in sorted(set(listed)):
        if name not in IDS:
            yield f"{name} is no id"
        elif listed.count(name) > 1:
            yield f"{name} has {listed.count(name)} rows"
    named = {}
    for name, tests, shows in rows:
        if not shows.strip():
            yield f"{name} does not say what it shows"
        if tests.startswith("waits for "):
            if tests[len("waits for ") :] not in WAITS:
                yield f"{name}: '{tests}', allowed: {', '.join(sorted(WAITS))}"
            continue
        pairs = re.findall(r"`([^`]+)` in `([^`]+)`", tests)
        if not pairs:
            yield f"{name} names no test as `TEST` in `FILE`"
        for test, file in pairs:
            named.setdefault(test, set()).add(name)
            path = TOP / file
            if not path.is_file():
                yield f"{name}: there is no {file}"
            elif test not in names_in(path):
                yield f"{name}: there is no test {test} in {file}"
    for pattern in WHOLE:
        for path in sorted(TOP.glob(pattern)):
            for test in sorted(names_in(path)):
                carried = re.search(r"(A\d\d)(?!\d)", test)
                if not carried:
                    yield f"{test} in {path.relative_to(TOP)} carries no id"
                elif carried.group(1) not in named.get(test, ()):
                    yield f"{test} in {path.relative_to(TOP)} is not in the row of its id"


def main():
    found = list(problems((TOP / "tests" / "README.md").read_text()))
    for problem in found:
        print("known failures:", problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
