"""What libmaru.so exports, what its version script lists and what the headers declare are the same."""

import re
import subprocess
import sys
from pathlib import Path


def declared(folder: Path) -> set[str]:
    names: set[str] = set()
    for header in sorted(folder.glob("*.h")):
        text = re.sub(r"/\*.*?\*/", " ", header.read_text(encoding="utf-8"), flags=re.S)
        # A declaration: a name before "(" outside braces, ended by ");".
        names |= set(re.findall(r"\b(maru_\w+)\s*\([^;{}]*\)\s*;", text))
    return names


def listed(script: Path) -> tuple[set[str], str]:
    text = script.read_text(encoding="utf-8")
    version = text.split("{", 1)[0].strip()
    return set(re.findall(r"^\s*(maru_\w+);", text, flags=re.M)), version


def exported(library: Path) -> set[str]:
    output = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library],
                            check=True, capture_output=True, text=True).stdout
    return {line.split()[2] for line in output.splitlines() if line.split()[1] != "A"}


def main() -> None:
    library, script, headers = (Path(argument) for argument in sys.argv[1:4])
    in_headers = declared(headers)
    in_script, version = listed(script)
    in_library = exported(library)
    wanted = {f"{name}@@{version}" for name in in_script}
    problems = []
    for what, left, right in (
        ("declared but not in the version script", in_headers, in_script),
        ("in the version script but not declared", in_script, in_headers),
        ("listed but not exported", wanted, in_library),
        ("exported but not listed", in_library, wanted),
    ):
        if left - right:
            problems.append(f"{what}: {', '.join(sorted(left - right))}")
    dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    if "[libmaru.so.0]" not in dynamic:
        problems.append("its soname is not libmaru.so.0")
    if len(in_headers) < 30:
        problems.append(f"only {len(in_headers)} declarations found: is this test still reading the headers?")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
