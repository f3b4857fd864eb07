# SPDX-License-Identifier: Apache-2.0
"""The binding against include/maru/*.h: every function, structure and constant, with its types.

The header is the truth. A function without declared types would have its pointers and sizes cut to
32 bits by ctypes on some machines only, so a symbol that is in one and not in the other fails here.
"""

import ctypes
import os
import pathlib
import re
import unittest

from maru import _abi

INCLUDE = (
    pathlib.Path(
        os.environ.get("MARU_INCLUDE", pathlib.Path(__file__).resolve().parents[2] / "include")
    )
    / "maru"
)

SCALARS = {
    "int": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "char": ctypes.c_char,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}


def source():
    """All headers as one text without comments and preprocessor lines."""
    texts = []
    for path in sorted(INCLUDE.glob("*.h")):
        text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S)
        texts.append(re.sub(r"^\s*#.*$", "", text, flags=re.M))
    return "\n".join(texts)


def c_type(text):
    """The ctypes type of a C type such as "const struct maru_manifest *"."""
    stars = text.count("*")
    name = re.sub(r"\b(const|struct)\b|\*", " ", text).split()
    if len(name) != 1:
        raise ValueError(f"cannot read the C type {text!r}")
    name = name[0]
    if name == "void":
        if stars == 0:
            return None
        made, stars = ctypes.c_void_p, stars - 1
    elif name == "char" and stars == 1 and "const" in text:
        return ctypes.c_char_p
    else:
        made = SCALARS[name] if name in SCALARS else getattr(_abi, name)
    for _ in range(stars):
        made = ctypes.POINTER(made)
    return made


def parameter(text):
    """The type of one parameter; an array parameter is a pointer."""
    match = re.fullmatch(r"(.*?)(\w+)\s*(\[[^\]]*\])?", text.strip(), flags=re.S)
    kind = match.group(1) + ("*" if match.group(3) else "")
    return c_type(kind)


def functions(text):
    found = {}
    pattern = r"([A-Za-z_][\w \t]*?[\s*]+)(maru_\w+)\s*\(([^()]*)\)\s*;"
    for result, name, arguments in re.findall(pattern, text):
        arguments = arguments.strip()
        split = [] if arguments == "void" else arguments.split(",")
        found[name] = (c_type(result), [parameter(argument) for argument in split])
    return found


def structures(text):
    found = {}
    for name, body in re.findall(r"struct\s+(\w+)\s*\{([^{}]*)\}", text):
        fields = []
        for line in filter(None, (field.strip() for field in body.split(";"))):
            match = re.fullmatch(r"(.*?)(\w+)\s*(?:\[(\w+)\])?", line, flags=re.S)
            kind = c_type(match.group(1))
            if match.group(3):
                length = match.group(3)
                kind *= int(length) if length.isdigit() else constants()[length]
            fields.append((match.group(2), kind))
        found[name] = fields
    return found


def constants():
    found = {}
    for path in sorted(INCLUDE.glob("*.h")):
        for name, value in re.findall(
            r"^#define MARU_(\w+)[ \t]+(\S+)", path.read_text(), flags=re.M
        ):
            found["MARU_" + name] = value.strip('"') if '"' in value else int(value.strip("()").rstrip("uU"))
    return found


class AbiTest(unittest.TestCase):
    def test_the_headers_are_read(self):
        text = source()
        self.assertGreaterEqual(len(functions(text)), 35)
        self.assertGreaterEqual(len(structures(text)), 9)
        self.assertEqual(len(re.findall(r"\bmaru_\w+\s*\(", text)), len(functions(text)))

    def test_every_function_is_bound_with_the_types_of_the_header(self):
        declared = functions(source())
        self.assertEqual(set(declared), set(_abi.FUNCTIONS))
        for name, (result, arguments) in declared.items():
            with self.subTest(function=name):
                self.assertIs(_abi.FUNCTIONS[name][0], result)
                self.assertEqual(_abi.FUNCTIONS[name][1], arguments)

    def test_every_structure_has_the_fields_of_the_header(self):
        declared = structures(source())
        bound = {
            name: kind._fields_
            for name, kind in vars(_abi).items()
            if isinstance(kind, type)
            and issubclass(kind, ctypes.Structure)
            and hasattr(kind, "_fields_")
        }
        self.assertEqual(set(declared), set(bound))
        for name, fields in declared.items():
            with self.subTest(structure=name):
                self.assertEqual(bound[name], fields)

    def test_every_constant_has_the_value_of_the_header(self):
        for name, value in constants().items():
            with self.subTest(constant=name):
                self.assertEqual(getattr(_abi, name[len("MARU_") :]), value)

    def test_the_loaded_library_carries_the_declared_types(self):
        if not os.environ.get("MARU_LIBRARY"):
            self.skipTest("MARU_LIBRARY is not set")
        from maru import _library

        library = _library.load()
        self.assertIsInstance(library, ctypes.CDLL)
        self.assertNotIsInstance(library, ctypes.PyDLL)
        for name, (result, arguments) in _abi.FUNCTIONS.items():
            function = getattr(library, name)
            self.assertIs(function.restype, result, name)
            self.assertEqual(function.argtypes, arguments, name)

    def test_the_untyped_probe_gets_what_the_header_says(self):
        if not os.environ.get("MARU_LIBRARY"):
            self.skipTest("MARU_LIBRARY is not set")
        from maru import _library

        library = _library.load()
        probe = library.untyped_probe
        self.assertIs(type(probe), library._FuncPtr)  # without the GIL
        self.assertIs(probe.restype, ctypes.c_int64)
        self.assertIsNone(probe.argtypes)
        # Of other types than pointers are a size_t and a uint32_t, which Namespace.probe() makes itself.
        pointers = type(ctypes.POINTER(ctypes.c_int))
        others = [kind for kind in library.maru_probe.argtypes if not isinstance(kind, pointers)]
        self.assertEqual(others, [ctypes.c_size_t, ctypes.c_uint32])

    def test_a_handle_of_another_kind_is_refused(self):
        if not os.environ.get("MARU_LIBRARY"):
            self.skipTest("MARU_LIBRARY is not set")
        from maru import _library

        with self.assertRaises(ctypes.ArgumentError):
            _library.load().maru_client_close(ctypes.POINTER(_abi.maru_pool)())


if __name__ == "__main__":
    unittest.main()
