#!/usr/bin/env python3
"""Checks what compilers do not: includes that point up, third-party headers, banned constructs, file budgets.

usage: tools/check_layers.py [ROOT]

Findings are printed as "file:line: message" and make the exit code 1. Files over budget are printed as notes only.
What the rules allow is listed in tools/layers.txt.
"""
import os
import re
import subprocess
import sys

BUDGET = {".cc": 500, ".h": 200}
CODE_FOLDERS = ("src", "include", "apps", "tests", "benchmarks", "examples", "tools")
SKIPPED = {"build", ".git", "venv", "__pycache__"}
STANDARD = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits clocale
cmath compare complex concepts condition_variable csetjmp csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime cwchar
deque exception filesystem forward_list fstream functional future initializer_list iomanip ios iosfwd iostream istream
iterator latch limits list locale map memory memory_resource mutex new numbers numeric optional ostream queue random ratio
scoped_allocator semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string
string_view syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray
variant vector version
format ranges regex
""".split())
SYSTEM = re.compile(r"^((sys|linux|net|netinet|arpa)/.*|unistd|fcntl|sched|dirent|dlfcn|errno|execinfo|link|malloc|poll|pthread"
                    r"|getopt|grp|pwd|signal|spawn|stdio|stdlib|string|strings|termios|time|utime|cpuid|elf|glob|fnmatch|cxxabi)(\.h)?$")

# (pattern, message, where it is looked for, files where it is allowed)
BANS = [
    (r"#\s*include\s*<(ranges|format|regex)>", "not usable by both compilers, or too slow: see CONTRIBUTING.md",
     r".*", None),
    (r"\b(std::views|std::ranges::(views|subrange|unique|remove|remove_if|partition|stable_partition|rotate|search|find_end"
     r"|equal_range))\b", "clang 14 cannot compile what libstdc++ returns here: use the iterator form", r".*", None),
    (r"\b(ReorderDemote2To|OrderedDemote2To)\b|\bDemoteTo\s*\([^;]*\b(d?bf16|bfloat16\w*|dbf\w*)\b",
     "Highway's bf16 demotion truncates: use the rounding helper", r"src/.*", "bf16-demotion"),
    (r"^\s*#\s*(if|ifdef|ifndef|elif)\b(?!.*\b(HWY_\w+|LODE_\w+_(H|ONCE)|__SANITIZE_\w+|__has_feature)\b)",
     "conditional compilation: an optional dependency is a twin file chosen by CMake", r"(src|include|apps)/.*",
     "conditional"),
    (r"\b(printf|fprintf|vprintf|puts|fputs|putchar)\s*\(|\bstd::(cout|cerr|clog)\b",
     "printing belongs to apps; libraries return values or use core/log.h", r"(src|include)/.*", "printing"),
    (r"\bs(n)?printf\s*\(|\bstd::o?stringstream\b", "format with core/format.h", r"(src|include)/.*", "formatting"),
    (r"\bnew\s+[A-Za-z_:]|\bdelete\s+[A-Za-z_]|\bdelete\s*\[|\b(malloc|calloc|realloc)\s*\(",
     "raw allocation: use containers, make_unique or accounted storage", r"(src|include|apps)/.*", "allocation"),
    (r"\b(std::)?(exit|_exit|_Exit|quick_exit|abort|terminate)\s*\(", "the library never ends the process",
     r"(src|include)/.*", "ending"),
    (r"\bstd::[io]?fstream\b|\bfopen\s*\(", "files go through core/file.h", r"(src|include)/.*", "files"),
    (r"\b(std::)?(rand|srand|random_device|mt19937(_64)?|default_random_engine)\b", "random numbers come from core/rng.h",
     r"(src|include)/.*", "random"),
]
COMMENT_BANS = [(r"\b(TODO|FIXME|XXX)\b", "unfinished work is not committed; file an issue")]


class Rules:
    """tools/layers.txt: sections of lines; a line's first word is the key, the rest its values."""

    def __init__(self, path):
        self.sections = {}
        section = None
        with open(path, encoding="utf-8") as f:
            for line in f:
                line = line.split("#")[0].strip()
                if not line:
                    continue
                if line.startswith("["):
                    section = self.sections.setdefault(line.strip("[]"), [])
                else:
                    section.append(line.split())
        self.layers = [words[0] for words in self.sections["layers"]]
        self.public = {words[0]: words[1] for words in self.sections["public headers"]}
        self.third_party = [(words[0], words[1], words[2:]) for words in self.sections["third-party"]]
        self.allowed = {}
        for key, *files in self.sections.get("allowed", []):
            self.allowed.setdefault(key, []).extend(files)

    def is_allowed(self, key, path):
        return any(re.fullmatch(pattern, path) for pattern in self.allowed.get(key, []))


def strip_code(text):
    """Blanks comments, strings and character literals, keeping line breaks; include lines keep their paths."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)

    def blank(match):
        found = match.group(0)
        if found.startswith('"') and text[text.rfind("\n", 0, match.start()) + 1:match.start()].strip().startswith("#"):
            return found
        if found.startswith("'") and match.start() > 0 and text[match.start() - 1].isalnum():
            return found  # a digit separator
        return re.sub(r"[^\n]", " ", found)

    return pattern.sub(blank, text)


def layer_of(path, rules):
    """The layer a file obeys, or None for those that may include everything."""
    parts = path.split("/")
    if parts[0] == "include":
        return rules.public.get(parts[-1])
    if parts[0] in ("src", "tests", "benchmarks") and len(parts) > 2 and parts[1] in rules.layers:
        return parts[1]
    return None


class Checker:
    def __init__(self, root, rules, files):
        self.root, self.rules, self.files = root, rules, files
        self.known = set(files)
        self.findings, self.notes = [], []
        self.users = {}  # library -> sources that include it

    def report(self, path, line, message):
        self.findings.append(f"{path}:{line}: {message}")

    def check_placement(self, path):
        parts = path.split("/")
        if parts[0] == "src" and (len(parts) < 3 or parts[1] not in self.rules.layers):
            self.report(path, 1, "not in a layer's folder; layers are listed in tools/layers.txt")
        if parts[0] == "include" and parts[-1] not in self.rules.public:
            self.report(path, 1, "a public header without a layer: add it to tools/layers.txt")
        if re.search(r"\.(cpp|cxx|c\+\+|hpp|hh|hxx|C)$", path):
            self.report(path, 1, "sources end in .cc, headers in .h")

    def check_own_include(self, path, number, target, layer):
        if target.startswith("lode/"):
            target_path, target_layer = "include/" + target, self.rules.public.get(target.split("/")[-1])
        else:
            target_path, target_layer = "src/" + target, target.split("/")[0]
        if target_path not in self.known:
            if any(re.match(pattern, target) for _, pattern, _ in self.rules.third_party):
                self.check_library_include(path, number, target)
                return
            # Outside the library a file may also name what lies beside it, or start from its top folder.
            near = (os.path.join(os.path.dirname(path), target), path.split("/")[0] + "/" + target)
            if not path.startswith(("src/", "include/")) and any(name in self.known for name in near):
                return
            self.report(path, number, f'"{target}" is not a file of src/ or include/ (write the path from there)')
            return
        # The umbrella header belongs to no layer: it may include every public header, and no layer includes it.
        if target_layer == "all" and layer is not None:
            self.report(path, number, f'{layer} may not include the umbrella "{target}"')
            return
        if layer in (None, "all") or target_layer not in self.rules.layers:
            return
        if self.rules.layers.index(target_layer) > self.rules.layers.index(layer):
            self.report(path, number, f'{layer} may not include "{target}": {target_layer} lies below it')

    def check_library_include(self, path, number, target):
        if target in STANDARD or SYSTEM.match(target):
            return
        for library, pattern, allowed in self.rules.third_party:
            if not re.match(pattern, target):
                continue
            if not path.startswith(("src/", "include/", "apps/")):
                return
            if any(re.fullmatch(entry, path) for entry in allowed):
                return
            if path.endswith(".h"):
                self.report(path, number, f"<{target}>: third-party headers are never included by our headers")
            self.users.setdefault(library, set()).add(path)
            return
        self.report(path, number, f"<{target}> is neither a standard header nor listed in tools/layers.txt")

    def check_file(self, path):
        self.check_placement(path)
        with open(os.path.join(self.root, path), encoding="utf-8") as f:
            text = f.read()
        lines = text.split("\n")
        extension = os.path.splitext(path)[1]
        if len(lines) - 1 > BUDGET.get(extension, 10**9):
            self.notes.append(f"{path}: {len(lines) - 1} lines, the budget is {BUDGET[extension]}")
        if extension == ".h" and "#pragma once" not in text and "HWY_TARGET_TOGGLE" not in text:
            self.report(path, 1, "no #pragma once")
        layer = layer_of(path, self.rules)
        for number, line in enumerate(strip_code(text).split("\n"), 1):
            include = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
            if include and include.group(1):
                self.check_own_include(path, number, include.group(1), layer)
            elif include:
                self.check_library_include(path, number, include.group(2))
            for pattern, message, where, key in BANS:
                if re.fullmatch(where, path) and re.search(pattern, line) and not self.rules.is_allowed(key, path):
                    self.report(path, number, message)
        for number, line in enumerate(lines, 1):
            for pattern, message in COMMENT_BANS:
                if re.search(pattern, line):
                    self.report(path, number, message)

    def check_totals(self):
        for library, users in sorted(self.users.items()):
            if len(users) > 2:
                self.report(sorted(users)[2], 1, f"{library} is included by {len(users)} files, two may: {', '.join(sorted(users))}")
        public = [path for path in self.files if path.startswith("include/")]
        if len(public) > 16:
            self.report("include", 1, f"{len(public)} public headers; fifteen and one umbrella may be")

    def run(self):
        for path in self.files:
            self.check_file(path)
        self.check_totals()
        return self.findings, self.notes


def list_files(root):
    found = []
    for folder in CODE_FOLDERS:
        for path, folders, names in os.walk(os.path.join(root, folder)):
            folders[:] = [name for name in folders if name not in SKIPPED]
            for name in names:
                if re.search(r"\.(cc|h|cpp|cxx|hpp|hh|hxx)$", name):
                    found.append(os.path.relpath(os.path.join(path, name), root))
    return sorted(found)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    rules = Rules(os.path.join(root, "tools/layers.txt"))
    files = list_files(root)
    findings, notes = Checker(root, rules, files).run()
    for note in notes:
        print("over budget:", note)
    for finding in findings:
        print(finding)
    print(f"check_layers: {len(files)} files, {len(findings)} findings, {len(notes)} over budget")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
