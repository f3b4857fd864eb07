#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of probe, acquire + release, commit and store, at the client and in marud.

Usage: guard.py --build KIND MARUD PROGRAM [--update]

Both ends run under callgrind. Each operation's cost is the difference of two runs that do it FEW and MANY times,
divided by how many times more: start-up, population and everything else is in both. Fails when a count is more than
10 % above that of guard.json for this KIND of build ("gcc 12, O2"). --update writes what was counted.
Exit 77, with what is missing, without valgrind or without counts for this kind of build.
"""

import argparse
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

OPERATIONS = ["probe-1", "probe-2048", "acquire-release-1024", "commit-256", "store-32"]
FEW, MANY = 4, 24
ALLOWED = 0.10
COUNTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guard.json")
# One more probe goes with each acquire + release: it reads the release's answer.
WITH_PROBE = "acquire-release-1024"


class Missing(Exception):
    """What this machine lacks."""


def callgrind(out, command):
    return ["valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={out}", *command]


def total(path):
    with open(path, encoding="utf-8") as lines:
        found = [int(m[1]) for m in (re.match(r"(?:totals|summary): (\d+)", line) for line in lines) if m]
    if not found:
        raise RuntimeError(f"callgrind left no total in {path}")
    return found[-1]


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
    """Instructions of (client, marud) for one run that does each operation times[name] times."""
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
        server_out, client_out = os.path.join(folder, "server"), os.path.join(folder, "client")
        client_log = os.path.join(folder, "client-log")
        with open(log, "w", encoding="utf-8") as text:
            server = subprocess.Popen(
                callgrind(server_out, [marud, "--user", "--config", config]),
                stdout=text, stderr=text, env=environment,
            )
            try:
                wait_until_serving(path, server, log, 60)
                with open(client_log, "w", encoding="utf-8") as errors:
                    client = subprocess.Popen(
                        callgrind(client_out, [program, path, *(f"{name}={n}" for name, n in times.items())]),
                        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
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
            return total(client_out + ".1"), total(server_out)


def count(marud, program):
    few = {name: FEW for name in OPERATIONS}
    base = run(marud, program, few)
    counted = {}
    for name in OPERATIONS:
        most = run(marud, program, dict(few, **{name: MANY}))
        counted[name] = {
            end: (most[i] - base[i]) / (MANY - FEW) for i, end in enumerate(("client", "marud"))
        }
    for end in ("client", "marud"):
        counted[WITH_PROBE][end] -= counted["probe-1"][end]
    return {name: {end: round(n) for end, n in ends.items()} for name, ends in counted.items()}


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
    counted = count(os.path.abspath(arguments.marud), os.path.abspath(arguments.program))
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
