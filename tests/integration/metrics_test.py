#!/usr/bin/env python3
"""Metrics as documented: man page, dashboard and maructl beside a scrape of a real marud.

Usage: metrics_test.py SOURCE_ROOT MARUD MARUCTL
       metrics_test.py SOURCE_ROOT MARUD MARUCTL --page    print the list for man/maru-metrics.7
"""

import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT, MARUD, MARUCTL = sys.argv[1:4]

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{((?:{NAME}="(?:[^"\\\n]|\\["\\n])*",?)*)\}})? ([0-9.eE+-]+|NaN|[+-]Inf)')
LABEL = re.compile(rf'({NAME})="((?:[^"\\\n]|\\["\\n])*)"')


class Family:
    def __init__(self, name, help_text):
        self.name, self.help, self.type = name, help_text, None
        self.samples = []  # (name, labels, value)

    def labels(self):
        """Label names in order with their values in order; le is the histogram's own."""
        out = {}
        for _, labels, _ in self.samples:
            for key, value in labels:
                if key != "le" and value not in out.setdefault(key, []):
                    out[key].append(value)
        return out

    def unit(self):
        base = self.name[:-6] if self.type == "counter" else self.name
        return next((u for u in ("bytes", "seconds") if base.endswith("_" + u)), None)


def parse(text):
    """The text exposition format 0.0.4 by its specification: anything else is an error."""
    families, seen, current = {}, set(), None
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    for number, line in enumerate(text[:-1].split("\n"), 1):
        where = f"line {number}: {line!r}"
        if line.startswith("# HELP "):
            name, help_text = line[7:].split(" ", 1)
            if not re.fullmatch(NAME, name) or name in families or (current and not current.samples):
                raise ValueError(where)
            current = families[name] = Family(name, help_text)
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            if not current or current.name != name or current.type or kind not in ("counter", "gauge", "histogram"):
                raise ValueError(where)
            current.type = kind
        else:
            match = SAMPLE.fullmatch(line)
            if not match or not current or not current.type:
                raise ValueError(where)
            name, labels, value = match[1], tuple(LABEL.findall(match[2] or "")), float(match[3])
            suffixes = ("_bucket", "_sum", "_count") if current.type == "histogram" else ("",)
            if name not in [current.name + suffix for suffix in suffixes] or (name, labels) in seen:
                raise ValueError(where)
            if len({key for key, _ in labels}) != len(labels) or value < 0:
                raise ValueError(where)
            seen.add((name, labels))
            current.samples.append((name, labels, value))
    return families


def roff(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def sentences(text):
    """One per line, as mdoc wants them."""
    return re.sub(r"([.;:]) (?=[A-Z])", r"\1\n", text).split("\n")


# Written once, and not for each of thirty requests again.
LONG_LISTS = {"request": "as in the protocol: hello, open_session, commit, probe and so on, and malformed",
              "status": "every status of the protocol but ok", "version": "of marud"}


def page_list(families):
    lines = [".Bl -tag -width Ds"]
    for family in families.values():
        lines.append(f".It Ic {family.name}")
        facts = family.type.capitalize() + (f" of {family.unit()}" if family.unit() else "")
        labels = family.labels()
        lines.append(facts + (" with the labels" if len(labels) > 1 else " with the label" if labels else "."))
        keys = list(labels)
        for key in keys:
            values = LONG_LISTS.get(key) or ", ".join(labels[key])
            end = "." if key == keys[-1] else ","
            lines.append(f".Cm {key}\n({roff(values)}){end}")
        lines += [roff(line) for line in sentences(family.help)]
    return "\n".join(lines + [".El"]) + "\n"


class Marud:
    """A marud in a directory of its own, with metrics on both sockets."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="marud-metrics-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        path = self.directory.name
        with open(f"{path}/marud.toml", "w", encoding="utf-8") as config:
            config.write(f'[metrics]\ntcp = "127.0.0.1:{self.port}"\n')
        self.socket = f"{path}/marud.sock"
        read_end, write_end = os.pipe()
        self.process = subprocess.Popen(
            [MARUD, "--socket", self.socket, "--config", f"{path}/marud.toml"], stderr=write_end)
        os.close(write_end)
        deadline, log = time.monotonic() + 30, b""
        while b"serves on" not in log:  # the line it writes when it does
            if not select.select([read_end], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise RuntimeError(f"marud does not start: {log!r}")
            block = os.read(read_end, 4096)
            if not block:
                raise RuntimeError(f"marud ended: {log!r}")
            log += block
        self.log = read_end

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
        os.close(self.log)
        self.directory.cleanup()

    def get(self, *headers, tcp=False):
        """Headers and body of an answer."""
        if tcp:
            client = socket.create_connection(("127.0.0.1", self.port), 30)
        else:
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(30)
            client.connect(f"{self.directory.name}/metrics.sock")
        with client:
            client.sendall("\r\n".join(["GET /metrics HTTP/1.1", "Host: a", *headers, "", ""]).encode())
            answer = b""
            while block := client.recv(65536):
                answer += block
        head, body = answer.decode().split("\r\n\r\n", 1)
        return head, body


# Words of a query that are neither metrics nor labels.
PROMQL = {"sum", "max", "min", "avg", "rate", "increase", "histogram_quantile", "by", "time", "label_values"}


def matched(query):
    """(metric, {label: value pattern}) for each selector of a query, and the labels it groups by."""
    selectors = []
    for name, matchers in re.findall(rf"({NAME})\{{([^}}]*)\}}", query):
        pairs = re.findall(rf'({NAME})\s*(=~|!~|!=|=)\s*"([^"]*)"', matchers)
        selectors.append((name, {label: (op, value) for label, op, value in pairs}))
    rest = re.sub(rf"{NAME}\{{[^}}]*\}}(\[[^\]]*\])?", "", query)
    groups = [word.strip() for group in re.findall(r"by \(([^)]*)\)", rest) for word in group.split(",")]
    rest = re.sub(r"by \([^)]*\)", "", rest)
    loose = [word for word in re.findall(NAME, rest) if word not in PROMQL]
    return selectors, groups, loose


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.marud = Marud()
        cls.addClassCleanup(cls.marud.stop)
        cls.head, cls.text = cls.marud.get()
        cls.families = parse(cls.text)
        cls.labels = {}  # of each sample's name: label -> values
        for family in cls.families.values():
            for name, labels, _ in family.samples:
                of_name = cls.labels.setdefault(name, {})
                for key, value in labels:
                    of_name.setdefault(key, set()).add(value)

    def maructl(self, *words):
        done = subprocess.run([MARUCTL, "--socket", self.marud.socket, *words], capture_output=True, text=True,
                              timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_both_sockets_say_the_same(self):
        self.assertIn("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8", self.head)
        over_tcp = parse(self.marud.get(tcp=True)[1])
        series = [[sample[:2] for sample in family.samples] for family in self.families.values()]
        self.assertEqual([[sample[:2] for sample in family.samples] for family in over_tcp.values()], series)

    def test_names_follow_prometheus(self):
        for family in self.families.values():
            self.assertRegex(family.name, r"^(maru|process)_[a-z0-9_]+$")
            self.assertEqual(family.name.endswith("_total"), family.type == "counter", family.name)
            for word in ("ms", "us", "ns", "kib", "mib", "percent", "ratio"):
                self.assertNotIn(word, family.name.split("_"))

    def test_openmetrics_on_request(self):
        accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
        head, body = self.marud.get(accept)
        self.assertIn("\r\nContent-Type: application/openmetrics-text; version=1.0.0", head)
        self.assertTrue(body.endswith("\n# EOF\n"))
        types = dict(line[7:].split(" ") for line in body.splitlines() if line.startswith("# TYPE "))
        self.assertEqual(types["maru_commits"], "counter")
        self.assertEqual(types["maru_build"], "info")
        for line in body.splitlines():
            if line.startswith("# UNIT "):
                name, unit = line[7:].split(" ")
                self.assertTrue(name.endswith("_" + unit), line)
        strip = re.compile(r" [0-9.]+$", re.M)
        samples = [strip.sub("", line) for line in body.splitlines() if line[:1] != "#"]
        self.assertEqual(samples, [strip.sub("", line) for line in self.text.splitlines() if line[:1] != "#"])

    def test_every_metric_is_in_the_man_page(self):
        with open(f"{ROOT}/man/maru-metrics.7", encoding="utf-8") as page:
            text = page.read()
        self.assertIn(page_list(self.families), text,
                      "the list of man/maru-metrics.7 is not what marud serves; print it with --page")

    def test_every_query_of_the_dashboard_names_what_exists(self):
        with open(f"{ROOT}/daemon/metrics/maru-dashboard.json", encoding="utf-8") as file:
            dashboard = json.load(file)
        rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
        self.assertEqual(rows, ["Health", "Capacity", "Hits", "Latency", "Sessions", "Faults"])
        panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
        self.assertEqual(len({panel["id"] for panel in dashboard["panels"]}), len(dashboard["panels"]))
        queries = [(panel["title"], target["expr"], target["legendFormat"])
                   for panel in panels for target in panel["targets"]]
        queries += [(v["name"], v["query"]["query"], "") for v in dashboard["templating"]["list"]
                    if v["type"] == "query" and "{" in v["query"]["query"]]
        self.assertGreater(len(queries), 40)
        shown = set()
        for title, query, legend in queries:
            with self.subTest(panel=title, query=query):
                self.assertEqual(query.count("("), query.count(")"))
                selectors, groups, loose = matched(query)
                if title == "instance":
                    loose.remove("instance")
                self.assertEqual(loose, [], "names without a selector")
                self.assertTrue(selectors)
                for name, matchers in selectors:
                    shown.add(name)
                    self.assertIn(name, self.labels, "no such metric")
                    known = self.labels[name]
                    for label, (operator, value) in matchers.items():
                        if label in ("job", "instance"):
                            continue
                        self.assertIn(label, known)
                        for one in value.split("|") if operator == "=~" else [value]:
                            self.assertIn(one, known[label])
                    for label in groups + re.findall(r"\{\{(\w+)\}\}", legend):
                        if label not in ("job", "instance"):
                            self.assertIn(label, known)
        bases = {re.sub(r"_(bucket|sum|count)$", "", name) if name not in self.families else name for name in shown}
        self.assertEqual(set(self.families) - bases, set(), "metrics that no panel shows")

    def test_panels_do_not_overlap(self):
        with open(f"{ROOT}/daemon/metrics/maru-dashboard.json", encoding="utf-8") as file:
            places = [panel["gridPos"] for panel in json.load(file)["panels"]]
        taken = set()
        for place in places:
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(taken & cells, place)
            self.assertLessEqual(place["x"] + place["w"], 24)
            taken |= cells

    def test_maructl_prints_the_text(self):
        code, out, err = self.maructl("metrics")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(list(parse(out)), list(self.families))

    def test_maructl_filters_and_makes_json(self):
        code, out, _ = self.maructl("metrics", "maru_proof")
        self.assertEqual(code, 0)
        self.assertEqual(list(parse(out)), [name for name in self.families if name.startswith("maru_proof")])
        code, out, _ = self.maructl("metrics", "--json", "maru_sessions")
        self.assertEqual(code, 0)
        families = json.loads(out)["metrics"]
        self.assertEqual([f["name"] for f in families], [n for n in self.families if n.startswith("maru_sessions")])
        sample = families[0]["samples"][0]
        self.assertEqual(sample, {"name": "maru_sessions", "labels": {"role": "worker", "state": "attached"},
                                  "value": 0})

    def test_maructl_says_what_is_wrong(self):
        code, out, err = self.maructl("metrics", "nothing_like_that")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("no metric begins with 'nothing_like_that'", err)
        code, out, err = self.maructl("--socket", "/nonexistent/marud.sock", "metrics")
        self.assertEqual((code, out), (3, ""))
        self.assertIn("/nonexistent/metrics.sock", err)

    def test_promtool_agrees(self):
        try:
            checked = subprocess.run(["promtool", "check", "metrics"], input=self.text, capture_output=True, text=True,
                                     timeout=60, check=False)
        except FileNotFoundError:
            self.skipTest("promtool is not installed")
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


if __name__ == "__main__":
    if "--page" in sys.argv:
        running = Marud()
        print(page_list(parse(running.get()[1])), end="")
        running.stop()
    else:
        unittest.main(argv=sys.argv[:1] + sys.argv[4:])
