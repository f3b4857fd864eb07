#!/usr/bin/env python3
"""What the shells really offer after Tab: the generated completions in bash, zsh and fish, beside a
real marud with a worker. A shell that is not installed is a skip that names it.

Run with MARUD, MARUCTL, MARU_LIBRARY and the Python package on PYTHONPATH; see meson.build.
"""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import maru
from support import MIB, Daemon

MARUCTL = os.environ["MARUCTL"]


def bash(words):
    """What bash would insert for the last of @words."""
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$AT; _maructl\n'
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return shell_lines(
        ["bash", "-c", script, "bash", script_of("bash"), MARUCTL, *words],
        AT=str(len(words)),
    )


def fish(words):
    line = " ".join(["maructl", *words])
    # Each line is a candidate, a tab, and its description.
    lines = shell_lines(["fish", "--no-config", "-c", f'source {script_of("fish")}; complete -C "{line}"'])
    return [line.split("\t")[0] for line in lines]


def zsh(words, expected):
    """True when @expected stands on the screen after Tab."""
    parent, child = pty.openpty()
    home = tempfile.mkdtemp(prefix="maru-zsh-")
    environment = dict(path_with_maructl(), TERM="dumb", ZDOTDIR=home, HOME=home)
    process = subprocess.Popen(["zsh", "-f", "-i"], stdin=child, stdout=child, stderr=child,
                               env=environment, start_new_session=True)
    os.close(child)
    seen = ""

    def wait_for(text, seconds):
        nonlocal seen
        deadline = time.monotonic() + seconds
        while text not in seen and time.monotonic() < deadline:
            if select.select([parent], [], [], 0.2)[0]:
                try:
                    seen += os.read(parent, 65536).decode(errors="replace")
                except OSError:
                    break
        return text in seen

    try:
        # "READ""Y": what is typed must not look like what is waited for.
        setup = f'autoload -Uz compinit; compinit -D -u; source {script_of("zsh")}; PS1=""; print READ"Y"\n'
        os.write(parent, setup.encode())
        assert wait_for("READY", 60), seen
        seen = ""
        os.write(parent, (" ".join(["maructl", *words]) + "\t").encode())
        return wait_for(expected, 30), seen
    finally:
        process.kill()
        process.wait()
        os.close(parent)
        shutil.rmtree(home)


def path_with_maructl():
    environment = dict(os.environ, PATH=os.path.dirname(MARUCTL) + os.pathsep + os.environ["PATH"])
    environment.pop("LD_PRELOAD", None)  # a sanitizer's run-time, for Python alone
    return environment


def shell_lines(command, **extra):
    done = subprocess.run(command, env=dict(path_with_maructl(), **extra), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or done.stderr:
        raise AssertionError((command, done))
    return [line for line in done.stdout.splitlines() if line]


SCRIPTS = tempfile.TemporaryDirectory(prefix="maru-completion-")


def script_of(shell):
    path = os.path.join(SCRIPTS.name, shell)
    if not os.path.exists(path):
        with open(path, "wb") as file:
            subprocess.run([MARUCTL, "completion", shell], stdout=file, check=True, timeout=60)
    return path


def verbs_and_options():
    text = subprocess.run([MARUCTL, "--help"], capture_output=True, text=True, check=True).stdout
    _, verbs, options, _ = re.split(r"\n\n(?=  |Exit)", text, maxsplit=3)
    names = re.compile(r"^  (\S+)", re.M)
    return names.findall(verbs), names.findall(options)


def requires(shell):
    return unittest.skipUnless(shutil.which(shell), f"{shell} is not installed")


class CompletionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.cleanup)
        cls.daemon.start()
        cls.client = maru.Client("engine a", socket_path=cls.daemon.socket_path)
        cls.addClassCleanup(cls.client.close)
        cls.client.namespace("completion-test")
        cls.client.pool(MIB)
        cls.socket = ["--socket", cls.daemon.socket_path]
        cls.namespace = cls.asked("namespace", "namespace")
        cls.pool = cls.asked("pool", "pool")

    @classmethod
    def asked(cls, verb, key):
        done = subprocess.run([MARUCTL, verb, "--json", *cls.socket], capture_output=True, check=True)
        (row,) = json.loads(done.stdout)[verb + "s"]
        return row[key]

    def check_all(self, complete):
        """What bash and fish, which answer without a screen, have in common."""
        verbs, options = verbs_and_options()
        self.assertGreater(len(verbs), 12)
        self.assertEqual(sorted(complete([""])), sorted(verbs))
        self.assertEqual(complete(["dra"]), ["drain"])
        self.assertEqual(sorted(complete(["drain", ""])), ["off", "on"])
        self.assertEqual(complete(["drain", "on", ""]), [])
        self.assertEqual(sorted(complete(["completion", ""])), ["bash", "fish", "zsh"])
        self.assertEqual(complete(["--json", "sess"]), ["session"])
        everywhere = set(options) - {"--engine", "--uid", "--count", "--namespace", "--segment"}
        self.assertEqual(set(complete(["status", "--"])), everywhere)
        self.assertEqual(set(complete(["explain", "--"])), everywhere | {"--engine", "--uid"})
        self.assertEqual(set(complete(["retire", "--"])), everywhere | {"--namespace", "--segment", "--uid"})
        # What marud has, wherever the command line says that it is.
        self.assertEqual(complete([*self.socket, "object", ""]), [self.namespace])
        self.assertEqual(complete(["usage", *self.socket, "0x"]), [self.pool])
        self.assertEqual(complete(["retire", *self.socket, self.namespace, ""]), [])
        # Nobody answers: nothing is offered, and nothing is printed.
        self.assertEqual(complete(["--socket", "/nonexistent", "object", ""]), [])

    @requires("bash")
    def test_bash(self):
        self.check_all(bash)
        # bash splits at '='.
        self.assertEqual(bash(["object", "--socket", "=", self.daemon.socket_path, ""]), [self.namespace])
        directory = os.path.dirname(self.daemon.socket_path)
        self.assertIn(self.daemon.socket_path, bash(["--socket", directory + "/"]))
        self.assertIn(self.daemon.socket_path, bash(["--socket", "=", directory + "/"]))

    @requires("fish")
    def test_fish(self):
        self.check_all(fish)
        self.assertIn("engine a", [name.replace("\\", "") for name in
                                   fish(["explain", *self.socket, "--engine", ""])])

    @requires("zsh")
    def test_zsh(self):
        for words, expected in [
            (["dra"], "drain"),
            (["completion", "f"], "fish"),
            (["explain", "--eng"], "--engine"),
            ([*self.socket, "object", "0x"], self.namespace),
            (["object", *self.socket, "0x"], self.namespace),
        ]:
            found, seen = zsh(words, expected)
            self.assertTrue(found, (words, expected, seen))


if __name__ == "__main__":
    unittest.main(verbosity=2)
