#!/bin/sh
# mutants_complete.sh LIST DAEMON: the planted bugs in the sources are exactly those of the list.
set -eu
planted=$(grep -rhoE 'MARU_MUTANT\([A-Z][A-Za-z]*\)' --include='*.cc' --include='*.h' "$2" |
    sed 's/.*(\(.*\))/\1/' | grep -vx Name | sort -u)
listed=$(cut -d' ' -f1 "$1" | sort -u)
[ "$planted" = "$listed" ] && exit 0
echo "planted in the sources:" $planted
echo "named in $1:" $listed
exit 1
