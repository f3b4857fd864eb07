#!/usr/bin/env bash
# Replays with workers and marud killed at random moments, seed after seed, until enough have died.
# Every run must end with no wrong byte and nothing charged (the replayer sees to both).
# Usage: tests/soak/kills.sh BUILD_DIR [KILLS [FIRST_SEED]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$1 wanted=${2:-1000} seed=${3:-1}
json=$(mktemp)
trap 'rm -f "$json"' EXIT
workers=0 maruds=0 verified=0
while [ $((workers + maruds)) -lt "$wanted" ]; do
    if ! log=$(tests/demo.sh --no-setup --build "$build" --requests 3000 --kill --kills 100 --seed "$seed" --json "$json" 2>&1); then
        echo "$log"
        echo "kills.sh: seed $seed failed"
        exit 1
    fi
    read -r w m v x < <(jq -r '"\(.worker_kills) \(.marud_kills) \(.bytes_verified) \(.mismatches)"' "$json")
    [ "$x" -eq 0 ] || { echo "kills.sh: seed $seed: $x mismatches"; exit 1; }
    workers=$((workers + w)) maruds=$((maruds + m)) verified=$((verified + v)) seed=$((seed + 1))
done
echo "killed $workers workers and $maruds times marud; $verified bytes verified, none wrong, nothing left charged"
