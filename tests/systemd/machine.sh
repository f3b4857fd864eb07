#!/usr/bin/env bash
# Machine: a Debian root with systemd in it, made once and booted afresh for each run. Sourced.
#
# The root is cached under BUILD/machine, by a hash of what it was made from. A run sees it through an
# overlay in memory, so that nothing a test does is there in the next one. The release and the places
# to fetch from are those of the machine this runs on.
#
#   machine_need BUILD       exit 77 with the reason if this machine cannot boot one
#   machine_root BUILD       make or find the root; prints its path
#   machine_run BUILD ROOT WORK SECONDS LINES MODULE... -- [nspawn options]
#                            boot, run these modules of WORK/tests in it, switch it off; append a line for
#                            each test to the file LINES if that is not empty; fail after SECONDS

# What marud links, what its clients run on, and a compiler for programs against the installed headers.
machine_packages=(systemd systemd-sysv dbus libpam-systemd python3 libcapnp-0.9.2 libnuma1 libdaxctl1
    libtomlplusplus3 libstdc++6 gcc libc6-dev pkg-config)

machine_skip() {
    echo "$*" >&2
    exit 77
}

machine_need() {
    local tool
    [ "$(id -u)" -eq 0 ] || machine_skip "not root: systemd-nspawn cannot boot a machine"
    for tool in systemd-nspawn mmdebstrap flock; do
        command -v "$tool" >/dev/null || machine_skip "$tool is missing: tests/setup.sh installs it"
    done
    grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || machine_skip "this kernel has no overlay file system"
    mkdir -p "$1/machine"
}

machine_release() { (. /etc/os-release && echo "${VERSION_CODENAME:?/etc/os-release names no release}"); }

# Entries of apt's sources that name this release, in the deb822 form; others may not have our architecture.
machine_sources() {
    python3 - "$1" <<'P'
import glob, re, sys
release = sys.argv[1]
def wanted(suites):
    return all(s.rstrip("/").split("-")[0] == release for s in suites) and suites
for path in ["/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*.list"))]:
    try:
        lines = open(path, encoding="utf-8").read().splitlines()
    except OSError:
        continue
    for line in lines:
        m = re.match(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+(.+)$", line.strip())
        if m and wanted([m[3]]):
            signed = re.search(r"signed-by=(\S+)", m[1] or "")
            print(f"Types: deb\nURIs: {m[2]}\nSuites: {m[3]}\nComponents: {m[4]}")
            print(f"Signed-By: {signed[1]}\n" if signed else "")
for path in sorted(glob.glob("/etc/apt/sources.list.d/*.sources")):
    for stanza in re.split(r"\n\s*\n", open(path, encoding="utf-8").read()):
        stanza = "\n".join(line for line in stanza.splitlines() if not line.startswith("#"))
        suites = re.search(r"^Suites:\s*(.+)$", stanza, re.M)
        if suites and wanted(suites[1].split()) and re.search(r"^Types:.*\bdeb\b", stanza, re.M):
            print(stanza.strip() + "\n")
P
}

machine_root() {
    local build=$1 release hash root partial list status=0
    release=$(machine_release)
    hash=$( (echo "$release" "${machine_packages[@]}" && uname -m) | sha256sum | cut -c1-16)
    root=$build/machine/root-$release-$hash
    exec 8>"$build/machine/lock"
    flock 8
    if [ ! -d "$root" ]; then
        rm -rf --one-file-system "$build"/machine/root-* "$build"/machine/partial
        partial=$build/machine/partial
        list=$build/machine/apt.sources
        machine_sources "$release" >"$list"
        [ -s "$list" ] || machine_skip "apt's sources name no place for Debian '$release'"
        echo "making a Debian root with systemd; once" >&2
        # apt in there obeys its own configuration, so a proxy of this machine's is handed on.
        local proxies=() line
        while read -r line; do proxies+=(--aptopt="$line"); done < <(apt-config dump 2>/dev/null | grep -E '^Acquire::https?::Proxy ')
        mmdebstrap --quiet --variant=minbase --format=directory --dpkgopt=force-unsafe-io "${proxies[@]}" \
            --include="$(IFS=,; echo "${machine_packages[*]}")" \
            --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
            --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/man/man*/maru*' \
            --dpkgopt='path-include=/usr/share/man/man3/*maru*' --dpkgopt='path-include=/usr/share/doc/*maru*' \
            "$release" "$partial" "$list" >"$build/machine/root.log" 2>&1 || status=$?
        if [ $status -ne 0 ]; then
            rm -rf --one-file-system "$partial"
            if grep -Eqi 'could not (resolve|connect)|temporary failure|failed to fetch|connection (timed out|refused)' "$build/machine/root.log"; then
                machine_skip "no Debian mirror can be reached: $(grep -Eim1 'could not|temporary failure|failed to fetch|connection' "$build/machine/root.log")"
            fi
            tail -n 20 "$build/machine/root.log" >&2
            return 1
        fi
        mv "$partial" "$root"
    fi
    flock -u 8
    echo "$root"
}

machine_run() {
    local build=$1 root=$2 work=$3 seconds=$4 lines=$5 status=0
    shift 5
    : >"$work/tests/modules"
    while [ "$1" != -- ]; do
        echo "$1" >>"$work/tests/modules"
        shift
    done
    shift
    exec 8>"$build/machine/lock"
    flock 8
    local nspawn=(systemd-nspawn --quiet --register=no --keep-unit --directory="$root" --machine=maru-test
        --volatile=overlay --private-network --link-journal=no --console=pipe)
    # A container, for instance, may be root and have all programs and still not be let.
    timeout 60 "${nspawn[@]}" /bin/true </dev/null >"$work/results/console" 2>&1 8>&- ||
        machine_skip "systemd-nspawn cannot run here: $(tail -n 1 "$work/results/console")"
    timeout -k 20 "$seconds" "${nspawn[@]}" \
        --bind="$work/results:/results" --bind-ro="$work/tests:/maru-tests" \
        --bind-ro="$work/tests/maru-check.service:/etc/systemd/system/maru-check.service" "$@" \
        --boot systemd.wants=maru-check.service systemd.show_status=no \
        </dev/null >"$work/results/console" 2>&1 8>&- || status=$?
    flock -u 8
    cat "$work/results/report" 2>/dev/null || true
    [ -z "$lines" ] || cat "$work/results/lines" >>"$lines" 2>/dev/null || true
    if [ $status -eq 124 ] || [ $status -eq 137 ]; then
        echo "the machine was not done after $seconds s" >&2
    fi
    if [ $status -ne 0 ] || [ "$(cat "$work/results/verdict" 2>/dev/null)" != passed ]; then
        [ -s "$work/results/report" ] || tail -n 30 "$work/results/console" >&2
        echo "what the machine said: $work/results" >&2
        return 1
    fi
}
