#!/bin/sh
# Each public header stands alone, in C99 and in C++, without a warning: each_header.sh INCLUDE CC CXX
set -eu
include=$1 cc=$2 cxx=$3
for header in "$include"/maru/*.h; do
    name=maru/$(basename "$header")
    printf '#include <%s>\nint not_empty;\n' "$name" |
        "$cc" -std=c99 -pedantic -Wall -Wextra -Werror -I"$include" -fsyntax-only -x c -
    printf '#include <%s>\n' "$name" |
        "$cxx" -std=c++11 -pedantic -Wall -Wextra -Wshadow -Werror -I"$include" -fsyntax-only -x c++ -
done
