"""libmaru.so against the committed description of its ABI: what a program was compiled with stays.

  baseline_test.py LIBRARY HEADERS BASELINE           compare
  baseline_test.py --write LIBRARY HEADERS BASELINE   describe LIBRARY anew, for a release

Functions may be added, and fields at the end of a struct that begins with its size. Before it judges
the library it proves on damaged copies of the baseline that abidiff would see a change.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# What the headers declare and the library exports, without what only its implementation knows.
PUBLIC = ["--exported-interfaces-only", "--drop-private-types"]
# Bits of abidiff's exit status.
ERROR, USAGE, CHANGE = 1, 2, 4


def run(*command) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)


def write(library: Path, headers: Path, baseline: Path) -> None:
    done = run("abidw", *PUBLIC, "--headers-dir", headers, "--no-corpus-path", "--no-comp-dir-path",
               "--short-locs", "--no-elf-needed", "--type-id-style", "hash", "--out-file", baseline, library)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def growing(headers: Path) -> list[str]:
    """The structs that begin with their size."""
    names: list[str] = []
    for header in headers.rglob("*.h"):
        names += re.findall(r"struct (maru_\w+) \{\s*size_t size;", header.read_text(encoding="utf-8"))
    return names


def compare(library: Path, headers: Path, baseline: Path, folder: Path) -> tuple[int, str]:
    suppressions = folder / "suppressions"
    suppressions.write_text("".join(
        f"[suppress_type]\n  type_kind = struct\n  name = {name}\n  has_data_member_inserted_at = end\n\n"
        for name in growing(headers)))
    done = run("abidiff", *PUBLIC, "--headers-dir2", headers, "--no-added-syms", "--suppressions", suppressions,
               baseline, library)
    return done.returncode, done.stdout + done.stderr


# Each is what the baseline would say if the present library had changed in this way.
DAMAGES = {
    "a function was removed": (r"(<elf-symbol name='maru_)abort('.*?/>)", r"\1abort\2\n    \1aborted\2"),
    "a parameter got another type": (
        r"(<function-decl name='maru_pool_wait_populated'.*?\n\s*<parameter type-id=')([^']*)('.*?\n\s*<parameter type-id=')[^']*'",
        r"\1\2\3\2'"),
    "a field moved": (
        r"(<class-decl name='maru_completion'.*?)size-in-bits='128'(.*?)layout-offset-in-bits='64'",
        r"\1size-in-bits='192'\2layout-offset-in-bits='128'"),
}
GROWTH = {
    # The baseline of a library whose struct had one field less at its end.
    "a field was added at the end": (
        r"(<class-decl name='maru_schema'.*?)size-in-bits='192'(.*?)\n\s*<data-member [^>]*layout-offset-in-bits='128'>.*?</data-member>",
        r"\1size-in-bits='128'\2"),
}


def damaged(text: str, name: str, pattern: str, replacement: str) -> str:
    changed, count = re.subn(pattern, replacement, text, count=1, flags=re.S)
    if count != 1 or changed == text:
        sys.exit(f"the baseline has no place for '{name}': this test does not know its form")
    return changed


def main() -> None:
    arguments = sys.argv[1:]
    writing = arguments[0] == "--write"
    library, headers, baseline = (Path(argument) for argument in arguments[writing:])
    if not shutil.which("abidiff"):
        print("SKIP: abidiff is not installed (package abigail-tools)")
        sys.exit(77)
    if writing:
        write(library, headers, baseline)
        return
    if ".debug_info" not in run("readelf", "-S", "--wide", library).stdout:
        print("SKIP: the library has no debugging information to compare")
        sys.exit(77)
    problems = []
    with tempfile.TemporaryDirectory(prefix="maru-abi-") as name:
        folder = Path(name)
        text = baseline.read_text(encoding="utf-8")
        for table, wanted in ((DAMAGES, CHANGE), (GROWTH, 0)):
            for what, (pattern, replacement) in table.items():
                copy = folder / "damaged.abi"
                copy.write_text(damaged(text, what, pattern, replacement), encoding="utf-8")
                status, report = compare(library, headers, copy, folder)
                if status & CHANGE != wanted or status & (ERROR | USAGE):
                    problems.append(f"abidiff gave {status} where {what}:\n{report}")
        status, report = compare(library, headers, baseline, folder)
        if status:
            problems.append(f"the ABI differs from {baseline.name} (abidiff gave {status}):\n{report}")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
