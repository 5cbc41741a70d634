"""The README's first command, on what the tests have built already."""
import os
import pathlib
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["COFFERDAM_BIN"])

release_only = pytest.mark.skipif(BIN.parent.name != "release", reason="quickstart builds the release preset")


@release_only
def test_every_act_of_the_demonstration_is_stopped_and_told():
    done = subprocess.run([TOP / "quickstart"], capture_output=True, timeout=600, stdin=subprocess.DEVNULL)
    text = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0, text
    for reason in ("fsproxy: outside", "fsproxy: hidden", "egressproxy: metadata_address", "egressproxy: no_rule",
                   "kernel: read-only system", "fsproxy: readonly"):
        assert reason in text, text
    assert not (TOP / "build/quickstart/project/.git/hooks/post-commit").exists()


@release_only
def test_a_command_of_ones_own_runs_on_the_current_directory(tmp_path):
    (tmp_path / "file").write_text("mine")
    done = subprocess.run([TOP / "quickstart", "--", "sh", "-c", "cat file; echo new > made; exit 3"], cwd=tmp_path,
                          capture_output=True, timeout=600, stdin=subprocess.DEVNULL)
    assert done.returncode == 3, done.stderr.decode()
    assert b"mine" in done.stdout
    assert not (tmp_path / "made").exists()


@release_only
def test_misuse_is_told():
    assert subprocess.run([TOP / "quickstart", "--what"], capture_output=True, timeout=60).returncode == 2
