#!/usr/bin/env bash
# Format, static analysis and house rules over the tracked sources. Usage: tests/lint.sh BUILD_DIR
# MARU_TEST_ALL=1 adds clang-tidy over everything; else only its quick relatives run.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build}
failed=0
complain() {
    echo "lint: $*"
    failed=1
}

# 1. The top level is fixed.
allowed='^(meson.build|meson_options.txt|daemon|libmaru|include|systemd|man|tests|subprojects|README.md|LICENSE|\..*)$'
while read -r entry; do
    [[ $entry =~ $allowed ]] || complain "'$entry' does not belong at the top level"
done < <(git ls-files | cut -d/ -f1 | sort -u)

# 2. Public headers are C99 on their own.
for header in include/maru/*.h; do
    cc -std=c99 -Wall -Wextra -Werror -pedantic -Iinclude -fsyntax-only -x c "$header" || complain "$header is not C99"
done

# 3. Format.
if command -v clang-format >/dev/null; then
    mapfile -t sources < <(git ls-files '*.cc' '*.c' '*.h')
    if ! clang-format --dry-run -Werror "${sources[@]}" 2>.lint.log; then
        sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: error.*/lint: not formatted: \1/p' .lint.log | sort -u
        failed=1
    fi
    rm -f .lint.log
else
    echo "lint: clang-format is missing; format not checked"
fi

# 4. Shell and Python parse.
for script in $(git ls-files '*.sh') .ci/run; do
    bash -n "$script" || complain "$script does not parse"
    [ -x "$script" ] || complain "$script has no run bit"
done
python3 - <<'P' || complain "a Python file does not parse"
import ast, subprocess
for path in subprocess.check_output(["git", "ls-files", "*.py"], text=True).split():
    ast.parse(open(path).read(), path)
P

# 5. The README shows the very programs that the tests run.
python3 - <<'P' || complain "README.md does not show tests/capi/example.c and tests/python/first_program.py as they are"
text = open("README.md").read()
raise SystemExit(not all(open(p).read().rstrip() in text for p in ("tests/capi/example.c", "tests/python/first_program.py")))
P

# 6. Man pages.
if command -v mandoc >/dev/null; then
    for page in $(git ls-files 'man/*.[1-9]'); do
        mandoc -Tlint -W warning "$page" || complain "$page"
    done
fi

# 7. A type has one definition. Two of one name in one program are merged by the linker, or by its
# optimizer when it sees both, which is a crash that no compiler warns of.
python3 - <<'P' || complain "types with two definitions"
import re, subprocess

kind = r"(?:struct|class|enum class|union)(?: alignas\(\d+\))?"
defined, failed = {}, False
files = ["git", "ls-files", "daemon/*.h", "daemon/*.cc", "libmaru/*.h", "libmaru/*.cc"]
for path in subprocess.check_output(files, text=True).split():
    inside = []  # the namespaces around this line; one without a name is a file's own
    for line in open(path, encoding="utf-8"):
        if opened := re.match(r"(?:inline )?namespace ?([\w:]*) ?\{", line):
            inside.append(opened[1])
        elif re.match(r"\}  // namespace", line):
            inside.pop()
        elif "" not in inside and (made := re.match(kind + r" (\w+)(?: final)?(?: : [^;()]*)? \{", line)):
            name = "::".join(inside + [made[1]])
            if defined.setdefault(name, path) != path:
                print(f"lint: {name} is one thing in {defined[name]} and another in {path}")
                failed = True
raise SystemExit(failed)
P

# 8. Static analysis.
if [ "${MARU_TEST_ALL:-0}" -eq 1 ] && command -v clang-tidy >/dev/null && [ -f "$build/compile_commands.json" ]; then
    git ls-files 'daemon/*.cc' 'libmaru/*.cc' | xargs -P 2 -n 4 clang-tidy -p "$build" --quiet 2>/dev/null || complain "clang-tidy"
fi
exit $failed
