"""The example of the overview in maru/maru.h is tests/capi/example.c, line by line."""

import sys


def example_of(header: str) -> str:
    lines = header.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(" * Example"))
    text = []
    for line in lines[begin + 1:]:
        if line.strip() == "*/":
            break
        if not line.startswith(" *"):
            sys.exit(f"not a line of the overview: {line!r}")
        text.append(line[2:].removeprefix("  ") if line[2:].strip() else "")
    return "\n".join(text).strip("\n") + "\n"


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as header, open(sys.argv[2], encoding="utf-8") as source:
        shown, real = example_of(header.read()), source.read()
    if len(real.splitlines()) > 60:
        sys.exit(f"{sys.argv[2]} has {len(real.splitlines())} lines, at most 60 are allowed")
    for number, (a, b) in enumerate(zip(shown.splitlines(), real.splitlines()), 1):
        if a != b:
            sys.exit(f"line {number} differs:\n  header:  {a}\n  example: {b}")
    if shown != real:
        sys.exit("one text is longer than the other")


if __name__ == "__main__":
    main()
