"""Prints which files of the core run for a message of a program on PostgreSQL, in the middle of a backlog.

    gdb -batch -x tests/rooms/walk.py --args target/debug/examples/payments --database-url postgres://.. --workers 1 --input FILE

The program needs line tables and some thousand messages that succeed; CONTRIBUTING.md has the commands. gdb stops at the
thousandth attempt, sets a breakpoint at each function of the core, and lists the functions that the worker calls until many
messages later, in the order of their first call. Functions of one line, derived ones and conversions of values do not
count: nobody opens their files to follow a message. The number before a function is the message that first calls it: a read of
prefetched rows comes once in many messages.
"""

import os
import re
import subprocess

import gdb

# Setting the breakpoints takes so long that prefetched rows are out of date then. So what runs at first does not count: from the
# second of these attempts on, the breakpoints that were passed are set again, one after the other.
FIRST, STEADY, LAST = 1000, 1500, 3500
ATTEMPT = "TransactionRunner<K,C>::attempt_one"
ROOT = "queue-core/src/"
CONVERSION = re.compile(r"(?: as |<impl ).*(?:ops::deref::|FromSql<|FromStr>|clone::Clone>|convert::)")

program = gdb.current_progspace().filename
sources = {}


def is_long(path, line):
    """Tells whether a function that begins there has more than one line."""
    lines = sources.setdefault(path, open(path).read().splitlines())
    begin = lines[line - 1]
    if "derive(" in begin or begin.lstrip().startswith(("#[", "///")):
        return False
    if "fn " not in begin:
        return False  # a closure belongs to its function
    indent = begin[: len(begin) - len(begin.lstrip())]
    body = next((i for i in range(line - 1, len(lines)) if lines[i].endswith(("{", "}"))), None)
    if body is None or lines[body].endswith("}"):
        return False
    end = next((i for i in range(body, len(lines)) if lines[i] == indent + "}"), body)
    return end - body > 2


def functions():
    """Returns the core's functions in the program: where each begins in the file, and its name."""
    symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True).stdout
    found = [re.match(r"([0-9a-f]+) [tTwW] (.*)", line) for line in symbols.splitlines()]
    names = {int(match[1], 16): match[2] for match in found if match and "queue" in match[2]}
    lines = "\n".join(hex(address) for address in names)
    places = subprocess.run(["addr2line", "-e", program], input=lines, capture_output=True, text=True).stdout
    for (address, name), place in zip(names.items(), places.splitlines()):
        path, _, line = place.split(" ")[0].rpartition(":")
        if ROOT in path and line.isdigit() and is_long(path, int(line)) and not CONVERSION.search(name):
            yield address, path.split(ROOT)[1], name


class Attempt(gdb.Breakpoint):
    """Stops at the first attempt and at the last."""

    count = 0

    def stop(self):
        Attempt.count += 1
        if Attempt.count == STEADY:
            Call.calls.clear()
            Call.again, Call.passed = Call.passed, []
        if Call.again and Attempt.count % 2:
            Call.again.pop(0).enabled = True
        return Attempt.count in (FIRST, LAST)


class Call(gdb.Breakpoint):
    """Notes the first call of a function by the worker."""

    calls, passed, again = [], [], []

    def __init__(self, address, path, name):
        super().__init__(f"*{address}", internal=True)
        self.function = path, name

    def stop(self):
        if gdb.selected_thread().num == worker:
            Call.calls.append((Attempt.count - STEADY, *self.function))
            self.enabled = False
            Call.passed.append(self)
        return False


for command in ["confirm off", "pagination off", "print thread-events off", "breakpoint always-inserted on"]:
    gdb.execute(f"set {command}")
gdb.execute("starti")
mappings = gdb.execute("info proc mappings", to_string=True).splitlines()
base = int(next(line for line in mappings if os.path.realpath(program) in line).split()[0], 16)
core = list(functions())
for address, _, name in core:
    if name.endswith(ATTEMPT):
        Attempt(f"*{base + address}", internal=True)
gdb.execute("continue")
worker = gdb.selected_thread().num
marks = [Call(base + address, path, name) for address, path, name in core if not name.endswith(ATTEMPT)]
gdb.execute("continue")
files = {}
for message, path, name in Call.calls:
    files.setdefault(path, []).append(f"        {message:3} {name}")
for path, names in files.items():
    print(path, *names, sep="\n")
print(len(files), "files")
gdb.execute("kill")
