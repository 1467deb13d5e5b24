#!/usr/bin/env python3
"""Checks the checker: each small tree below must give exactly the findings named beside it."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_layers  # noqa: E402

LAYERS = r"""
[layers]
core
kernels
ops
[public headers]
error.h core
lode.h  all
[third-party]
fmt     ^fmt/
highway ^hwy/  src/kernels/.*
gtest   ^gtest/
[allowed]
printing src/core/log\.cc
"""
HEADER = "#pragma once\n"
CASES = [
    ("an include that points up", {"src/core/a.cc": '#include "ops/b.h"\n', "src/ops/b.h": HEADER}, ["lies below"]),
    ("an include that points down", {"src/ops/a.cc": '#include "core/b.h"\n', "src/core/b.h": HEADER}, []),
    ("a commented include", {"src/core/a.cc": '// #include "ops/b.h"\n', "src/ops/b.h": HEADER}, []),
    ("a test that includes a lower layer", {"tests/core/a_test.cc": '#include "ops/b.h"\n', "src/ops/b.h": HEADER},
     ["lies below"]),
    ("a public header obeys its layer", {"include/lode/error.h": HEADER + '#include "ops/b.h"\n', "src/ops/b.h": HEADER},
     ["lies below"]),
    ("a library that includes the umbrella", {"src/ops/a.cc": '#include "lode/lode.h"\n', "include/lode/lode.h": HEADER}, ["umbrella"]),
    ("an unknown folder", {"src/misc/a.cc": ""}, ["not in a layer's folder"]),
    ("an unknown public header", {"include/lode/x.h": HEADER}, ["without a layer"]),
    ("a file that does not exist", {"src/core/a.cc": '#include "core/none.h"\n'}, ["is not a file"]),
    ("no pragma once", {"src/core/a.h": "int x;\n"}, ["pragma once"]),
    ("a foreign extension", {"src/core/a.cpp": ""}, ["sources end in"]),
    ("a library in a header", {"src/core/a.h": HEADER + "#include <fmt/format.h>\n"}, ["never included by our headers"]),
    ("a library in three sources", {f"src/core/{n}.cc": "#include <fmt/format.h>\n" for n in "abc"}, ["two may"]),
    ("a library in two sources", {f"src/core/{n}.cc": "#include <fmt/format.h>\n" for n in "ab"}, []),
    ("a library where it is allowed", {f"src/kernels/{n}.h": HEADER + "#include <hwy/highway.h>\n" for n in "abc"}, []),
    ("a library nobody listed", {"src/core/a.cc": "#include <boost/any.hpp>\n"}, ["neither a standard header"]),
    ("standard headers", {"src/core/a.cc": "#include <vector>\n#include <sys/mman.h>\n#include <unistd.h>\n"}, []),
    ("ranges", {"src/core/a.cc": "#include <ranges>\n"}, ["both compilers"]),
    ("an algorithm that returns a subrange", {"src/core/a.cc": "auto r = std::ranges::unique(x);\n"}, ["clang 14"]),
    ("an algorithm that does not", {"src/core/a.cc": "std::ranges::unique_copy(x, y); std::ranges::sort(x);\n"}, []),
    ("a truncating demotion", {"src/kernels/a.cc": "auto y = hn::ReorderDemote2To(dbf16, a, b);\n"}, ["truncates"]),
    ("a demotion to integers", {"src/kernels/a.cc": "auto y = hn::DemoteTo(di16, a);\n"}, []),
    ("ifdef", {"src/core/a.cc": "#ifdef HAVE_URING\n#endif\n"}, ["twin file"]),
    ("a guard per target", {"src/kernels/a.h": "#if defined(LODE_A_H) == defined(HWY_TARGET_TOGGLE)\n#endif\n"}, []),
    ("a library in quotes", {"src/core/a.h": HEADER + '#include "fmt/format.h"\n'}, ["never included by our headers"]),
    ("a test's own header", {"tests/core/a_test.cc": '#include "help.h"\n', "tests/core/help.h": HEADER}, []),
    ("a header beside a source of the library", {"src/core/a.cc": '#include "b.h"\n', "src/core/b.h": HEADER},
     ["is not a file"]),
    ("ifdef of Highway", {"src/kernels/a.cc": "#if HWY_ONCE\n#endif\n"}, []),
    ("printing in the library", {"src/ops/a.cc": 'void f() { std::printf("x"); }\n'}, ["printing"]),
    ("printing where allowed", {"src/core/log.cc": 'void f() { std::fputs("x", stderr); }\n'}, []),
    ("printing in an app", {"apps/lode/a.cc": 'void f() { std::printf("x"); }\n'}, []),
    ("printing in a string", {"src/ops/a.cc": 'auto s = "printf(1)";\n'}, []),
    ("raw new", {"src/core/a.cc": "auto p = new int[3];\n"}, ["raw allocation"]),
    ("placement new", {"src/core/a.cc": "auto p = new (memory) T;\n"}, []),
    ("deleted function", {"src/core/a.cc": "A(const A&) = delete;\n"}, []),
    ("exit", {"src/core/a.cc": "void f() { std::exit(1); }\n"}, ["never ends"]),
    ("exit_code", {"src/core/a.cc": "int f() { return exit_code(1); }\n"}, []),
    ("a stream of a file", {"src/core/a.cc": "std::ifstream f(p);\n"}, ["core/file.h"]),
    ("unfinished work", {"tests/core/a.cc": "// TO" + "DO later\n"}, ["unfinished"]),
    ("a digit separator", {"src/core/a.cc": "int x = 1'000; std::exit(1'0);\n"}, ["never ends"]),
    ("a long source", {"src/core/a.cc": "\n" * 501}, ["NOTE"]),
    ("a source at its budget", {"src/core/a.cc": "\n" * 500}, []),
    ("a long header", {"src/core/a.h": HEADER + "\n" * 200}, ["NOTE"]),
]


def findings_of(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in dict(files, **{"tools/layers.txt": LAYERS}).items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        rules = check_layers.Rules(os.path.join(root, "tools/layers.txt"))
        findings, notes = check_layers.Checker(root, rules, check_layers.list_files(root)).run()
        return findings + ["NOTE " + note for note in notes]


def main():
    failed = 0
    for name, files, expected in CASES:
        found = findings_of(files)
        if len(found) != len(expected) or not all(want in have for want, have in zip(expected, found)):
            print(f"check_layers_test: {name}: expected {expected}, found {found}")
            failed += 1
    print(f"check_layers_test: {len(CASES) - failed} of {len(CASES)} pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
