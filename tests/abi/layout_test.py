"""layout.c asserts every struct, every field and every constant of the public headers."""

import re
import sys
from pathlib import Path


def structs(text: str) -> dict[str, list[str]]:
    """Name -> fields, of every struct that has a body."""
    found: dict[str, list[str]] = {}
    for name, body in re.findall(r"struct (maru_\w+) \{(.*?)\}", text, flags=re.S):
        # The last word of a declaration before ';', or before '[' of an array.
        found[name] = re.findall(r"(\w+)(?:\[[^\]]*\])?\s*;", body)
    return found


def main() -> None:
    headers, layout = Path(sys.argv[1]), Path(sys.argv[2])
    text = "\n".join(header.read_text(encoding="utf-8") for header in sorted(headers.rglob("*.h")))
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    declared = structs(text)
    constants = set(re.findall(r"^#define (MARU_\w+) \d\w*\s*$", text, flags=re.M))
    asserted = layout.read_text(encoding="utf-8")
    wanted = {f"SIZE({name}," for name in declared}
    wanted |= {f"OFFSET({name}, {field}," for name, fields in declared.items() for field in fields}
    wanted |= {f"VALUE({name}," for name in constants}
    present = set(re.findall(r"^(?:SIZE\(\w+,|OFFSET\(\w+, \w+,|VALUE\(\w+,)", asserted, flags=re.M))
    problems = [f"{layout.name} lacks {line} ...)" for line in sorted(wanted - present)]
    problems += [f"{layout.name} has {line} ...), which no header has" for line in sorted(present - wanted)]
    if len(declared) < 10 or len(constants) < 15:
        problems.append(f"only {len(declared)} structs and {len(constants)} constants found: "
                        "is this test still reading the headers?")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
