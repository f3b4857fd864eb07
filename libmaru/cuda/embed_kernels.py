# SPDX-License-Identifier: Apache-2.0
"""Writes a fat binary as C++: embed_kernels.py FATBIN OUTPUT"""

import pathlib
import sys

TEMPLATE = """// Made of {name} by the build.
#include "libmaru/cuda/kernels.h"

namespace maru::cuda {{

namespace {{
// Aligned as the driver reads its header.
alignas(64) constexpr unsigned char kImage[] = {{
{rows}
}};
}}  // namespace

Result<const unsigned char *> kernel_image() {{ return &kImage[0]; }}

}}  // namespace maru::cuda
"""


def main():
    source, output = map(pathlib.Path, sys.argv[1:])
    image = source.read_bytes()
    rows = [",".join(map(str, image[at : at + 32])) + "," for at in range(0, len(image), 32)]
    output.write_text(TEMPLATE.format(name=source.name, rows="\n".join(rows)), encoding="ascii")


if __name__ == "__main__":
    main()
