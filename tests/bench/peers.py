#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Maru and the other systems whose drivers are in a folder through one interface, round by round.

Usage: peers.py --marud PROGRAM [--json FILE] [--peers NAME,NAME...] [--rounds N] DIR

DIR has driver.py, common.py and peer_NAME.py; peer_maru.py is beside this program. Without --peers every peer of
DIR is tried; one that does not start is told and left out. The targets: a load of one object that another process
stored is ahead of every peer from 256 KiB on, and of all but files below.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NO_PEER = {"memcpy"}  # the floor, in one process
SIZES = [65536, 262144, 1048576, 4194304]
SHOWN = [("put", "p50"), ("get", "p50"), ("get_other", "p50"), ("put_b", "gbs"), ("get_b", "gbs"),
         ("put_2c", "gbs"), ("get_2c", "gbs"), ("exists1", "p50"), ("exists256", "p50")]


def peers_in(folder):
    found = [os.path.basename(path)[5:-3] for path in glob.glob(os.path.join(folder, "peer_*.py"))]
    return sorted(name for name in found if name != "maru")


def measure(folder, names, rounds, marud, out):
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, os.path.join(folder, "driver.py"), "--peers", ",".join(["maru", *names]),
               "--rounds", str(rounds), "--json", out]
    environment = dict(os.environ, PYTHONPATH=path, MARUD=marud)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    with open(out, encoding="utf-8") as text:
        return json.load(text)


def figure(results, peer, size, what, field):
    values = results.get(peer, {}).get(str(size), {}).get(what, {}).get(field)
    return statistics.median(values) if values else None


def entry(results, peer, size):
    ours = figure(results, "maru", size, "get_other", "p50")
    theirs = figure(results, peer, size, "get_other", "p50")
    reason = None
    if ours is None:
        reason = f"no figure of Maru: {results.get('maru', {}).get('start_error', 'see stderr')}"
    elif theirs is None:
        reason = f"{peer}: {results.get(peer, {}).get('start_error', 'one process does not read what another stored')}"
    whole = reason is None
    return {
        "group": "peers", "name": f"load of one object of another process, {size >> 10} KiB", "unit": "us",
        "value": ours, "floor": theirs, "against": f"peer: {peer}", "ratio": ours / theirs if whole else None,
        "target": theirs, "sense": "at most", "target_text": "<= 1x", "met": ours <= theirs if whole else None,
        "reason": reason,
    }


def table(results, names):
    for what, field in SHOWN:
        print(f"\n{what} ({'us, median' if field == 'p50' else 'GB/s'})")
        print(f"{'':16s}" + "".join(f"{size >> 10:>8d} KiB" for size in SIZES))
        for peer in ["maru", *names]:
            row = [figure(results, peer, size, what, field) for size in SIZES]
            if any(value is not None for value in row):
                print(f"{peer:16s}" + "".join(f"{value:12.2f}" if value is not None else f"{'-':>12s}" for value in row))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--marud", required=True)
    parser.add_argument("--json")
    parser.add_argument("--peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("folder")
    arguments = parser.parse_args()
    if not os.path.exists(os.path.join(arguments.folder, "driver.py")):
        sys.exit(f"peers.py: no driver.py in '{arguments.folder}'")
    names = arguments.peers.split(",") if arguments.peers else peers_in(arguments.folder)
    with tempfile.TemporaryDirectory(prefix="maru-peers-") as scratch:
        results = measure(arguments.folder, names, arguments.rounds, os.path.abspath(arguments.marud),
                          os.path.join(scratch, "out.json"))
    table(results, names)
    entries = [
        entry(results, peer, size)
        for size in SIZES
        for peer in names
        if peer not in NO_PEER and not (peer == "files" and size < 262144)
    ]
    print()
    for one in entries:
        word = one["reason"] or ("met" if one["met"] else "MISSED")
        print(f"{one['name']:48s} against {one['against']:24s} {word}")
    missing = [one for one in entries if one["met"] is None]
    why = "; ".join(sorted({one["reason"] for one in missing}))
    print(f"\n{sum(bool(one['met']) for one in entries)} of {len(entries)} targets met, "
          f"{len(missing)} not measurable here" + (f" ({why})" if why else ""))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as out:
            json.dump({"rounds": arguments.rounds, "entries": entries, "all": results}, out, indent=1)
            out.write("\n")


if __name__ == "__main__":
    main()
