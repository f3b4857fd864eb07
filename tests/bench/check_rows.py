#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a bench's JSON has every row that it must have. Usage: check_rows.py FILE

A row is one or more entries whose group and name match; each has a figure, a target and, where the target is
relative, the figure that it is against; or a reason why this machine cannot measure it.
"""

import json
import re
import sys

# group, name, how many entries with a target at least
ROWS = [
    ("copies", "maru_copy_in", 2),
    ("copies", "maru_copy_out", 2),
    ("control path, blocking", "probe, 1 key", 2),
    ("control path, spinning", "probe, 1 key", 1),
    ("control path, spinning", "probe, 4096 keys", 1),
    ("control path, blocking", "probe in batches of 4096", 1),
    ("control path", "acquire \\+ release", 2),
    ("control path", "commit in batches", 2),
    ("Python", "probe from Python, 1 key, blocking", 1),
    ("Python", "probe from Python, 1 key, spinning", 1),
    ("Python", "probe from Python, 4096 keys", 1),
    ("Python", "digests of 100k tokens, Python array", 1),
    ("Python", "digests of 100k tokens, Python list", 1),
    ("store and load", "store, pipelined", 1),
    ("store and load", "store, spinning", 1),
    ("store and load", "load, pipelined", 1),
    ("store and load", "load, spinning", 1),
    ("one object of another process", "load", 2),
    ("two clients", "two stores at once", 1),
    ("two clients", "two loads at once", 1),
    ("gather and scatter", "gather", 3),
    ("gather and scatter", "scatter", 3),
    ("killed", "sign to no hits", 1),
    ("killed", "sign to memory credited", 1),
    ("growth", "memory of marud per replica", 0),
    ("growth", "probe, 1 key among", 1),
    ("growth", "probe, 4096 keys among", 2),
    ("sessions", "probe, 1 key", 1),
    ("restart of marud", "told again", 1),
    ("idle", "processor time", 1),
    ("", "turns of marud's loop over 5 ms", 5),
    ("pool open", "^open", 1),
    ("pool open", "first store", 1),
    ("pool open", "populated", 1),
]
FIELDS = {"group", "name", "value", "unit", "floor", "against", "ratio", "target", "sense", "met", "reason"}


def wrong_with(entry):
    """What an entry lacks; None when it is whole."""
    missing = FIELDS - entry.keys()
    if missing:
        return f"has no {', '.join(sorted(missing))}"
    if entry["reason"]:
        return None  # said, and counted as not measurable
    if entry["value"] is None:
        return "has no figure and no reason"
    if entry["against"] and entry["floor"] is None:
        return f"is against '{entry['against']}', which has no figure"
    if entry["sense"] and (entry["target"] is None or entry["met"] is None):
        return "has a sense and no target"
    return None


def main():
    entries = json.load(open(sys.argv[1], encoding="utf-8"))["entries"]
    failures = []
    for entry in entries:
        wrong = wrong_with(entry)
        if wrong:
            failures.append(f"{entry.get('group')}: {entry.get('name')}: {wrong}")
    for group, name, least in ROWS:
        found = [e for e in entries if group in e["group"] and re.search(name, e["name"])]
        targets = [e for e in found if e["sense"] or (e["reason"] and e["value"] is None)]
        # A group that this machine cannot make at all is one entry of the group's name.
        if any(group in e["group"] and e["name"] == e["group"] and e["reason"] for e in entries):
            continue
        if not found or len(targets) < least:
            failures.append(f"row '{group}: {name}' has {len(targets)} targets, wanted {least}")
    for failure in failures:
        print(f"check_rows: {failure}", file=sys.stderr)
    print(f"{len(entries)} entries, {len(failures)} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
