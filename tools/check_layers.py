#!/usr/bin/env python3
"""Enforces the include rules: who may include whom (ARCHITECTURE.md, "Folders")."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# folder -> folders whose headers it may include, besides itself
ALLOWED = {
    "common/base": set(),
    "common/os": {"common/base"},
    "common/log": {"common/base", "common/os"},
    "common/policy": {"common/base"},
    "common/layer": {"common/base", "common/os"},
    "fsproxy/overlay": {"common/base", "common/os", "common/policy", "common/layer"},
    "fsproxy": {"fsproxy", "common"},
    "egressproxy": {"common/base", "common/os", "common/log", "common/policy"},
    "orchestrator/init": {"common/base", "common/os"},
    "orchestrator": {"orchestrator", "common"},
    "tests": {"tests", "common", "fsproxy", "egressproxy", "orchestrator"},
}
# headers of the system that only common/os (and the wire code named here) may include
OS_ONLY = re.compile(r'#include <(sys/(mount|syscall|socket|un|wait|prctl|ioctl)|linux/[^>]+|sched)\.h>')
OS_EXEMPT = ("common/os/", "orchestrator/init/", "orchestrator/probe/", "fsproxy/fuse/", "tests/")
FUSE_ONLY = re.compile(r'#include <(fuse|fuse3/fuse)[^>]*>')
BAD_NAMES = re.compile(r'(^|/)(util|utils|helpers|misc|core|manager)(\.(h|cc)|/)')


def folder_of(path: str) -> str:
    parts = path.split("/")
    for depth in range(len(parts) - 1, 0, -1):
        candidate = "/".join(parts[:depth])
        if candidate in ALLOWED:
            return candidate
    return parts[0]


def allowed(source: str, target: str) -> bool:
    own = folder_of(source)
    if "/" not in target:  # generated beside the object files of the same library
        return True
    if target.startswith(own + "/") or target.rsplit("/", 1)[0] == source.rsplit("/", 1)[0]:
        return True
    return any(target.startswith(entry + "/") for entry in ALLOWED.get(own, set()))


def main() -> int:
    faults = []
    for path in sorted(ROOT.rglob("*")):
        rel = path.relative_to(ROOT).as_posix()
        if path.suffix not in {".h", ".cc", ".c"} or rel.startswith(("build/", ".")):
            continue
        if BAD_NAMES.search(rel):
            faults.append(f"{rel}: a name that says nothing")
        text = path.read_text(errors="replace")
        if path.suffix == ".h" and "#pragma once" not in text:
            faults.append(f"{rel}: no #pragma once")
        for number, line in enumerate(text.splitlines(), 1):
            found = re.match(r'#include "([^"]+)"', line)
            if found and not allowed(rel, found.group(1)):
                faults.append(f"{rel}:{number}: {folder_of(rel)} may not include {found.group(1)}")
            if OS_ONLY.match(line) and not rel.startswith(OS_EXEMPT):
                faults.append(f"{rel}:{number}: {line.strip()} belongs to common/os")
            if FUSE_ONLY.match(line) and rel.startswith("fsproxy/overlay/"):
                faults.append(f"{rel}:{number}: overlay has never heard of FUSE")
    for fault in faults:
        print(fault)
    print(f"check_layers: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
