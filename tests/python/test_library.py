# SPDX-License-Identifier: Apache-2.0
"""Which libmaru is taken, and which is refused, with a sentence that helps."""

import ctypes.util
import os
import re
import subprocess
import sys
import unittest
import unittest.mock

import maru
from maru import _library
from support import FAKE, PACKAGE


def load(**environment):
    """Load the library in a process of its own; (exit status, what it printed)."""
    settings = {name: value for name, value in os.environ.items() if name != "MARU_LIBRARY"}
    settings.update(environment, PYTHONPATH=str(PACKAGE))
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "import maru\ntry: print(*maru.library())\n"
            "except ImportError as error: print(type(error).__name__, error); raise SystemExit(1)",
        ],
        env=settings,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ended.returncode, (ended.stdout + ended.stderr).strip()


class LibraryTest(unittest.TestCase):
    def setUp(self):
        self.path = os.environ.get("MARU_LIBRARY")
        if not self.path:
            self.skipTest("MARU_LIBRARY is not set")

    def fake(self):
        path = os.environ.get("MARU_FAKE_LIBRARY")
        if not path:
            self.skipTest("MARU_FAKE_LIBRARY is not set")
        return path

    def test_the_variable_names_the_library(self):
        self.assertEqual(maru.library().path, os.path.realpath(self.path))
        status, text = load(MARU_LIBRARY=self.path)
        self.assertEqual((status, text.split()[0]), (0, os.path.realpath(self.path)))

    def test_the_loader_finds_it_by_its_soname(self):
        directory = os.path.dirname(os.path.realpath(self.path))
        if not os.path.exists(os.path.join(directory, _library.SONAME)):
            self.skipTest(f"no {_library.SONAME} beside {self.path}")
        status, text = load(LD_LIBRARY_PATH=directory)
        self.assertEqual(status, 0, text)
        self.assertTrue(text.startswith(directory), text)

    def test_a_missing_library_says_where_to_put_one(self):
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("LD_LIBRARY_PATH", None)
            if ctypes.util.find_library("maru"):
                self.skipTest("libmaru is installed here")
        status, text = load(LD_LIBRARY_PATH="")
        self.assertEqual(status, 1)
        self.assertRegex(text, r"MaruLibraryError .*libmaru\.so\.0.*set MARU_LIBRARY")

    def test_a_wrong_variable_is_an_error_and_nothing_else_is_tried(self):
        status, text = load(
            MARU_LIBRARY="/nonexistent/libmaru.so", LD_LIBRARY_PATH=os.path.dirname(self.path)
        )
        self.assertEqual(status, 1)
        self.assertIn("MARU_LIBRARY names '/nonexistent/libmaru.so'", text)

    def test_another_library_is_refused(self):
        status, text = load(MARU_LIBRARY="libc.so.6")
        self.assertEqual(status, 1)
        self.assertIn("'libc.so.6' is not libmaru", text)

    def test_an_older_library_is_refused_with_both_versions_and_its_path(self):
        fake = self.fake()
        for version in ("0.0.9", "0.0.10-rc1", ""):
            status, text = load(MARU_LIBRARY=fake, MARU_FAKE_VERSION=version)
            self.assertEqual(status, 1, version)
            self.assertIn(f"'{os.path.realpath(fake)}' is version {version}", text)
            self.assertIn("needs at least version 0.1.0", text)
        for version in ("0.1.0", "0.1.0-dirty", "0.10.2", "1.0"):
            status, text = load(MARU_LIBRARY=fake, MARU_FAKE_VERSION=version)
            self.assertEqual(status, 0, text)

    def test_every_module_is_installed(self):
        there = {
            f"{folder}/{path.name}"
            for folder in ("maru", "maru_vllm")
            for path in (PACKAGE / folder).iterdir()
            if path.is_file()
        }
        build = PACKAGE / "meson.build"
        if not build.exists():
            self.skipTest(f"{PACKAGE} is not the source tree")
        self.assertEqual(set(re.findall(r"'(maru(?:_vllm)?/[\w.]+)'", build.read_text())), there)

    def test_importing_needs_no_library(self):
        settings = dict(os.environ, PYTHONPATH=str(PACKAGE), MARU_LIBRARY="/nonexistent")
        text = subprocess.run(
            [sys.executable, "-c", "import maru; print(maru.__version__)"],
            env=settings,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(text.stdout.strip(), maru.__version__, text.stderr)

    def test_the_package_has_the_version_of_the_library(self):
        if FAKE:
            self.skipTest("the fake library has a version of its own")
        self.assertEqual(maru.__version__, maru.library().version)


if __name__ == "__main__":
    unittest.main()
