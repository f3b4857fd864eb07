#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The man pages tell all that there is, and nothing else: verbs, options, settings with their true
defaults, capabilities, metrics, findings, functions with their parameters, fields and errors.

What is there is asked of the programs and read from the headers, so a page that was forgotten fails
here. Run with MARUD, MARUCTL, MARU_LIBRARY, MARU_MAN (folders of pages) and the Python package on
PYTHONPATH; see tests/python/meson.build.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tests" / "python"))

from support import Daemon

MAN = TOP / "man"
BUILT = [pathlib.Path(folder) for folder in os.environ["MARU_MAN"].split(os.pathsep)]
MARUD, MARUCTL = os.environ["MARUD"], os.environ["MARUCTL"]


def run(*command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, **options)
    if done.returncode not in (0, 1):
        raise AssertionError((command, done))
    return done.stdout


def page(name):
    return (MAN / name).read_text(encoding="utf-8")


def pages(section):
    return sorted(MAN.glob(f"*.{section}"))


def section(text, title):
    """The lines of `.Sh title` or `.Ss title`."""
    found = re.search(rf"^\.(S[hs]) {re.escape(title)}\n(.*?)(?=^\.Sh |^\.\1 |\Z)", text, flags=re.M | re.S)
    if not found:
        raise AssertionError(f"there is no section {title}")
    return found.group(2)


def items(text, macro):
    """Name -> text, of every `.It MACRO name[ , name]...` in a list."""
    found = {}
    for names, body in re.findall(rf"^\.It {macro} (.*)\n((?:(?!\.It |\.El|\.S[hs] ).*\n)*)", text, flags=re.M):
        for name in names.split(" , "):
            found[name.split(" ")[0]] = (names, body)
    return found


def plain(mdoc):
    """Words as they are read, more or less."""
    lines = [re.sub(r"^\.(?:Pq |Po )?[A-Z][a-z]( |$)", "", line) for line in mdoc.splitlines()]
    text = " ".join(lines).replace(r"\(dq", '"').replace(r"\&", "").replace(r"\e", "\\")
    return re.sub(r" ([.,;:)])(?=\s|$)", r"\1", text)


class Headers:
    """What the public headers declare."""

    def __init__(self):
        self.functions = {}  # name -> (parameters, errors that its text names)
        self.structs = {}  # name -> {field: (declaration, comment)}
        self.constants = set()
        for path in sorted((TOP / "include" / "maru").glob("*.h")):
            self.read(path.read_text(encoding="utf-8"))

    def read(self, text):
        code = re.sub(r"/\*.*?\*/", lambda comment: re.sub(r"[^\n]", " ", comment.group(0)), text, flags=re.S)
        comments = [found.group(0) for found in re.finditer(r"/\*.*?\*/", text, flags=re.S)]
        for name, parameters in re.findall(r"\b(maru_\w+)\(([^;{}]*)\);", code):
            split = [re.sub(r"\s+", " ", parameter).strip() for parameter in parameters.split(",")]
            own = [comment for comment in comments if f"{name}() -" in comment]
            errors = set(re.findall(r"-(E[A-Z0-9]+)\b", own[0])) if own else set()
            self.functions[name] = (split, errors)
        for name, body in re.findall(r"struct (maru_\w+) \{(.*?)\n\}", text, flags=re.S):
            fields = re.findall(r"^\s*([\w ]+(?:\*const )?[ *]+)(\w+(?:\[\w+\])?);(?:\s*/\*(.*?)\*/)?", body, flags=re.M)
            self.structs[name] = {field: (re.sub(r" +", " ", kind) + field, comment.strip())
                                  for kind, field, comment in fields}
        self.constants |= set(re.findall(r"^#define (MARU_\w+) ", text, flags=re.M))


HEADERS = Headers()


class ManTest(unittest.TestCase):
    def assertSame(self, documented, real, what):
        documented, real = set(documented), set(real)
        self.assertEqual(sorted(real - documented), [], f"{what}: not documented")
        self.assertEqual(sorted(documented - real), [], f"{what}: documented, and not there")
        self.assertTrue(real, what)

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_every_page_is_clean(self):
        for path in sorted(MAN.glob("*.[0-9]")):
            done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", path], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (0, ""), path.name)

    def test_every_reference_leads_to_a_page(self):
        there = {path.name for folder in [MAN, *BUILT] for path in folder.glob("*.[0-9]")}
        for path in sorted(MAN.glob("*.[0-9]")):
            for name, number in re.findall(r"\.?\bXr (\S+) (\d)", path.read_text(encoding="utf-8")):
                if name.startswith(("maru", "libmaru")):
                    self.assertIn(f"{name}.{number}", there, path.name)

    def test_every_verb_and_option_of_maructl(self):
        text = page("maructl.1")
        _, verbs, options, exits = re.split(r"\n\n(?=  |Exit)", run(MARUCTL, "--help"))
        described = section(text, "DESCRIPTION")
        verb_items, option_items = items(described, "Cm"), items(described, "Fl")
        usage = {line.split()[0]: line for line in re.findall(r"^  (\S.*)$", verbs, flags=re.M)}
        self.assertSame(verb_items, usage, "verbs of maructl")
        for name, line in usage.items():
            for word in re.findall(r"[A-Z]{2,}|--\w+|\b\w+(?=\|)", line.split("  ")[0]):
                self.assertIn(word.replace("--", "-"), verb_items[name][0], name)
        given = dict(re.findall(r"^  --(\S+).*?  +(.*)$", options, flags=re.M))
        self.assertSame([name.lstrip("-") for name in option_items], given, "options of maructl")
        for name, summary in given.items():
            # A default stands in parentheses at the end.
            for default in re.findall(r"\(([\w.]+)\)$", summary):
                self.assertIn(default, plain(option_items["-" + name][1]), name)
        stated = set(re.findall(r"\b(\d) ", exits))
        self.assertSame(re.findall(r"^\.It (\d)$", section(text, "EXIT STATUS"), flags=re.M), stated,
                        "exit statuses of maructl")

    def test_every_option_of_marud(self):
        given = re.findall(r"^  --(\S+)", run(MARUD, "--help"), flags=re.M)
        documented = re.findall(r"\bFl -([\w-]+)", page("marud.8"))
        self.assertSame(documented, given, "options of marud")

    def test_a80_documented_defaults_are_the_true_ones(self):
        text = page("marud.toml.5")
        documented = {}
        for table in re.findall(r"^\.Sh \[(\w+)\]", text, flags=re.M):
            for name, (_, body) in items(section(text, f"[{table}]"), "Cm").items():
                default = re.findall(r"^Default:\n\.Li (.*) \.$", body, flags=re.M)
                self.assertEqual(len(default), 1, name)
                documented[f"{table}.{name}"] = (default[0].replace(r"\(dq", '"'), ".Pq restart" in body)
        real, effective = {}, {}
        table, restart = "", False
        for line in run(MARUD, "--print-default-config").splitlines():
            if line.startswith("["):
                table = line[1:-1]
            elif line == "# (restart)":
                restart = True
            elif found := re.match(r"#(\w+) = (.*)$", line):
                real[f"{table}.{found.group(1)}"] = (found.group(2), restart)
                restart = False
        # Without a configuration: what it would really use.
        for line in run(MARUD, "--config", "/dev/null", "--socket", "/x", "--print-config").splitlines():
            if line.startswith("["):
                table = line[1:-1]
            elif found := re.match(r"(\w+) = (.*)$", line):
                effective[f"{table}.{found.group(1)}"] = found.group(2)
        self.assertSame(documented, real, "settings")
        self.assertSame(documented, effective, "settings in effect")
        for name, (default, _) in documented.items():
            self.assertEqual(documented[name], real[name], name)
            if default == '"auto"':
                self.assertNotEqual(effective[name], default, name)  # resolved to this machine's number
            else:
                self.assertEqual(default, effective[name], name)

    def test_every_capability(self):
        source = (TOP / "libmaru" / "wire" / "capabilities.h").read_text(encoding="utf-8")
        names = dict(re.findall(r'string_view (k\w+) = "(\w+)";', source))
        offered = {names[key]: flag == "true"
                   for key, flag in re.findall(r"\{(k\w+), \"[^\"]*\", (true|false)\}", source)}
        documented = items(section(page("maru_client.3"), "Capabilities"), "Cm")
        self.assertSame(documented, offered, "capabilities")
        for name, flag in offered.items():
            self.assertEqual("Not offered by this version." not in documented[name][1], flag, name)

    def test_every_finding_of_the_doctor(self):
        daemon = Daemon()
        self.addCleanup(daemon.cleanup)
        daemon.start()
        told = json.loads(run(MARUCTL, "doctor", "--json", "--socket", daemon.socket_path))
        checks = {finding["check"] for finding in told["findings"]}
        documented = items(section(page("maru-host.7"), "CHECKS"), "Cm")
        self.assertSame(documented, checks, "checks of maructl doctor")
        known = {f"{path.stem}({path.suffix[1:]})" for path in MAN.glob("*.[0-9]")}
        for finding in told["findings"]:
            for name in finding["man"].split(", "):
                if name.startswith("maru"):
                    self.assertIn(name, known, finding["check"])

    def test_every_function_has_a_page_of_its_name(self):
        text = (TOP / "libmaru" / "capi" / "libmaru.map").read_text(encoding="utf-8")
        exported = set(re.findall(r"^\s*(maru_\w+);", text, flags=re.M))
        self.assertSame(HEADERS.functions, exported, "functions of the headers")
        named = {}
        for path in pages(3):
            for name in re.findall(r"^\.Nm (\w+)", section(path.read_text(encoding="utf-8"), "NAME"), flags=re.M):
                if name != "libmaru":
                    self.assertNotIn(name, named, f"in {path.name}, too")
                    named[name] = path.name
        self.assertSame(named, exported, "functions")
        for name, family in named.items():
            if name + ".3" == family:
                continue
            links = [folder / f"{name}.3" for folder in BUILT if (folder / f"{name}.3").exists()]
            self.assertEqual([link.read_text() for link in links], [f".so man3/{family}\n"], name)

    def test_every_parameter_and_error_of_a_function(self):
        for path in pages(3):
            text = path.read_text(encoding="utf-8")
            if path.name == "libmaru.3":
                continue
            blocks = re.findall(r"^\.Fo (\w+)\n(.*?)^\.Fc", text, flags=re.M | re.S)
            shown = {name: re.findall(r'^\.Fa "(.*)"$', body, flags=re.M) for name, body in blocks}
            shown.update({name: ["void"] for name in re.findall(r"^\.Fn (\w+) void$", text, flags=re.M)})
            names = re.findall(r"^\.Nm (\w+)", section(text, "NAME"), flags=re.M)
            self.assertSame(shown, names, f"synopsis of {path.name}")
            errors = set(re.findall(r"^\.It Bq Er (E\w+)$", text, flags=re.M))
            for name in names:
                parameters, named = HEADERS.functions[name]
                self.assertEqual(shown[name], parameters, name)
                self.assertLessEqual(named, errors, name)
                # A parameter that the text names is one of the function.
                for word in items(section(text, name), "Fa"):
                    self.assertIn(word, [re.split(r"[ *]", p)[-1] for p in parameters], name)

    def test_every_error(self):
        text = (TOP / "include" / "maru" / "error.h").read_text(encoding="utf-8")
        real = set(re.findall(r"^ \*   -(E\w+) ", text, flags=re.M))
        documented = re.findall(r"^\.It Bq Er (E\w+)$", page("maru_error.3"), flags=re.M)
        self.assertSame(documented, real, "errors")

    def test_every_field_and_its_default(self):
        documented = {}
        for path in pages(3):
            for name, body in re.findall(r"^\.Ss struct (\w+)\n(.*?)(?=^\.S[hs] )", path.read_text(encoding="utf-8"),
                                         flags=re.M | re.S):
                documented[name] = dict(re.findall(r'^\.It Fa "(.*)"\n((?:(?!\.It |\.El).*\n)*)', body, flags=re.M))
        self.assertSame(documented, HEADERS.structs, "structs")
        for name, fields in HEADERS.structs.items():
            self.assertEqual(list(documented[name]), [declaration for declaration, _ in fields.values()], name)
            for declaration, comment in fields.values():
                told = plain(documented[name][declaration])
                self.assertGreater(len(told), 3, declaration)
                # "0: 5000" and "0 means 1" of the header.
                for default in re.findall(r"\b0(?::| means) (\w+)", comment):
                    self.assertRegex(told, rf"\b0: {default}\b", f"{name}.{declaration}")

    def test_every_constant(self):
        text = "\n".join(path.read_text(encoding="utf-8") for path in pages(3))
        text = re.sub(r"^\.Dt .*$", "", text, flags=re.M)  # the page's name, in capitals
        headers = {name for name in HEADERS.constants if not name.endswith("_H")}
        self.assertSame(re.findall(r"\b(MARU_[A-Z0-9_]*[A-Z0-9])\b", text),
                        headers | {"MARU_SOCKET", "MARU_COPY_KERNEL", "MARU_COPY_THREADS"}, "constants")

    def test_every_variable_of_the_environment(self):
        # pause_point.cc is linked into the marud of tests alone.
        sources = [path for folder in ("libmaru", "daemon") for path in (TOP / folder).rglob("*.cc")
                   if path.name != "pause_point.cc"]
        asked = set()
        for path in sources:
            asked |= set(re.findall(r'(?:getenv|environment)\("(MARU_\w+)"\)', path.read_text(encoding="utf-8")))
        documented = items(section(page("libmaru.3"), "ENVIRONMENT"), "Ev")
        self.assertSame(documented, asked, "variables")

    def test_every_limit_of_a_trace(self):
        text = plain(page("maru-trace.5"))
        header = (TOP / "tests" / "replay" / "trace.h").read_text(encoding="utf-8")
        for left, right in re.findall(r"kMax\w+ = (\d+) << (\d+);", header):
            self.assertIn(str(int(left) << int(right)), text)
        source = (TOP / "tests" / "replay" / "trace.cc").read_text(encoding="utf-8")
        members = re.findall(r'name == "(\w+)"', source)
        self.assertSame(items(section(page("maru-trace.5"), "DESCRIPTION"), "Cm"), members, "members of a request")


if __name__ == "__main__":
    unittest.main(verbosity=2)
