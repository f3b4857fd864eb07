#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of probe, acquire + release, commit and store, at the client and in marud.

Usage: guard.py --build KIND MARUD PROGRAM [--update]

Both ends run under callgrind. What an operation costs marud is the difference of two runs that do it FEW and many
times, divided by how many times more: start-up and everything else is in both. The client counts operation by
operation by itself. What varies is what marud does once a second, and whether a message is there already when an
end looks for it: so both ends take turns on one processor, and a count that seems to have grown is taken again, the
least one counts. Fails when a count is more than
10 % above that of guard.json for this KIND of build ("gcc 12, O2"). --update writes what was counted.
Exit 77, with what is missing, without valgrind or without counts for this kind of build.
"""

import argparse
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# How often at most: so much work that what else happens meanwhile is less than a hundredth of it.
OPERATIONS = {"probe-1": 600, "probe-2048": 24, "acquire-release-1024": 12, "commit-256": 32, "store-32": 128}
FEW = 4
ALLOWED = 0.10
COUNTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guard.json")
# One more probe goes with each acquire + release: it reads the release's answer.
WITH_PROBE = "acquire-release-1024"


AGAIN = 0.05  # a count this far above the known one is taken again, at most TRIES times
TRIES = 3


class Missing(Exception):
    """What this machine lacks."""


def callgrind(out, command):
    return ["valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={out}", *command]


def take_turns():
    """One processor, and nobody preempts the other because of a message."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def total(path):
    with open(path, encoding="utf-8") as lines:
        found = [int(m[1]) for m in (re.match(r"(?:totals|summary): (\d+)", line) for line in lines) if m]
    if not found:
        raise RuntimeError(f"callgrind left no total in {path}")
    return found[-1]


def totals_of_dumps(prefix):
    """The total of each dump that a program asked for by a name."""
    found = {}
    for path in glob.glob(glob.escape(prefix) + ".*"):
        with open(path, encoding="utf-8") as text:
            name = re.search(r"^desc: Trigger: Client Request: (\S+)", text.read(4096), re.M)
        if name:
            found[name[1]] = total(path)
    return found


def wait_until_serving(path, process, log, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            try:
                probe.connect(path)
                return
            except OSError:
                time.sleep(0.05)
    with open(log, encoding="utf-8", errors="replace") as text:
        raise RuntimeError(f"marud does not serve under callgrind: {text.read()[-2000:]}")


def run(marud, program, times):
    """Instructions of one run that does each operation times[name] times: by operation at the client, all of marud."""
    with tempfile.TemporaryDirectory(prefix="maru-guard-") as folder:
        path = os.path.join(folder, "s")
        config, log = os.path.join(folder, "marud.toml"), os.path.join(folder, "log")
        with open(config, "w", encoding="utf-8") as out:
            out.write(
                f'[daemon]\nsocket = "{path}"\nruntime_directory = "{folder}"\n'
                '[sessions]\ntimeout = "3600s"\nheartbeat = "1800s"\n'
                '[cpu]\nhost_bytes = "4G"\n[metrics]\nsocket = "off"\n'
            )
        # libc's copies: others would be chosen by a measurement, and some are unknown to callgrind.
        environment = dict(os.environ, MARU_COPY_KERNEL="libc", GLIBC_TUNABLES="glibc.malloc.arena_max=1")
        environment.pop("MALLOC_PERTURB_", None)  # meson's: each allocation is written to then
        server_out, client_out = os.path.join(folder, "server"), os.path.join(folder, "client")
        client_log = os.path.join(folder, "client-log")
        with open(log, "w", encoding="utf-8") as text:
            server = subprocess.Popen(
                callgrind(server_out, [marud, "--user", "--config", config]),
                stdout=text, stderr=text, env=environment, preexec_fn=take_turns,
            )
            try:
                wait_until_serving(path, server, log, 60)
                with open(client_log, "w", encoding="utf-8") as errors:
                    client = subprocess.Popen(
                        callgrind(client_out, [program, path, *(f"{name}={n}" for name, n in times.items())]),
                        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                        preexec_fn=take_turns,
                    )
                done = client.stdout.readline()
            finally:
                # marud first: that the worker ends is none of what is counted.
                server.send_signal(signal.SIGTERM)
                server.wait(60)
            client.communicate(timeout=60)
            if done != b"done\n":
                with open(client_log, encoding="utf-8", errors="replace") as errors:
                    raise RuntimeError(f"{program}: {errors.read()[-2000:]}")
            # Inside the folder's life.
            return totals_of_dumps(client_out), total(server_out)


def grew(counts, known, allowed):
    return any(now > known[end] * (1 + allowed) for end, now in counts.items() if end in known)


def count(marud, program, known):
    few = {name: FEW for name in OPERATIONS}
    base = min(run(marud, program, few)[1] for _ in range(2))
    counted = {}
    for name, many in OPERATIONS.items():
        least = {}
        for _ in range(TRIES if known else 1):
            clients, server = run(marud, program, dict(few, **{name: many}))
            now = {"client": clients[name] / many, "marud": (server - base) / (many - FEW)}
            if name == WITH_PROBE:
                now = {end: n - counted["probe-1"][end] for end, n in now.items()}
            least = {end: round(min(n, least.get(end, n))) for end, n in now.items()}
            if name in known and not grew(least, known[name], AGAIN):
                break
        counted[name] = least
    return counted


def compare(counted, known):
    """Prints a line for each count; the number of those that grew too much."""
    grown = 0
    for name, ends in counted.items():
        for end, now in ends.items():
            before = known.get(name, {}).get(end)
            change = now / before - 1 if before else 0.0
            word = ""
            if before and change > ALLOWED:
                word, grown = f"  GREW by more than {ALLOWED:.0%}", grown + 1
            elif before and change < -ALLOWED:
                word = "  fell: write it down with --update"
            print(f"{name:22s} {end:7s} {now:12,d}  was {before or 0:12,d}  {change:+7.1%}{word}")
    return grown


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("marud")
    parser.add_argument("program", nargs="?")
    arguments = parser.parse_args()
    if not shutil.which("valgrind"):
        raise Missing("valgrind is not installed")
    if not arguments.program:
        raise Missing("valgrind's headers were not installed when this was built")
    known = {}
    if os.path.exists(COUNTS):
        with open(COUNTS, encoding="utf-8") as text:
            known = json.load(text)
    if not arguments.update and arguments.build not in known:
        raise Missing(f"guard.json has no counts for '{arguments.build}', only for {', '.join(known) or 'nothing'}")
    here = {} if arguments.update else known.get(arguments.build, {})
    counted = count(os.path.abspath(arguments.marud), os.path.abspath(arguments.program), here)
    grown = compare(counted, known.get(arguments.build, {}))
    if arguments.update:
        known[arguments.build] = counted
        with open(COUNTS, "w", encoding="utf-8") as out:
            json.dump(known, out, indent=2, sort_keys=True)
            out.write("\n")
        return 0
    return 1 if grown else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Missing as why:
        print(f"guard: {why}")
        sys.exit(77)
