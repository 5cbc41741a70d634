#!/usr/bin/python3
"""Stands in for a service at its start: COFFERDAM_FAKE beside it says what it does.

error: refuses to start. silent: never gets ready. dies: ends at once. garbage: an endless ready line.
"""
import os
import pathlib
import signal
import sys

words = sys.argv
ready = int(words[words.index("--ready-fd") + 1])
what = (pathlib.Path(words[0]).parent / "COFFERDAM_FAKE").read_text().strip()
if what == "error":
    os.write(ready, b"error: no luck \x1b[31m\n")
elif what == "silent":
    signal.pause()  # until it is ended
elif what == "garbage":
    os.write(ready, b"x" * 10000)
sys.exit(1)
