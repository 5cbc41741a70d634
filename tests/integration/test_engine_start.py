"""A start that fails: every earlier step is undone, the message names the step and the service."""
import pathlib
import shutil
import signal
import time

import pytest

import sandbox_runs
from sandbox_runs import Runner, process_table, skip_unless_root, wait_until

FAKE = pathlib.Path(__file__).resolve().parent.parent / "fakes" / "fake_service.py"


@pytest.fixture(params=["fsproxy", "egressproxy"])
def broken(request, tmp_path):
    """A runner one of whose services is a fake; `broken.fake(what)` tells it what to do."""
    skip_unless_root()
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in sandbox_runs.BIN.glob("cofferdam*"):
        (programs / program.name).symlink_to(program.resolve())
    main = programs / "cofferdam"  # finds the others beside itself: it must be a file here
    main.unlink()
    shutil.copy2(sandbox_runs.BIN / "cofferdam", main)
    name = programs / f"cofferdam-{request.param}"
    name.unlink()
    shutil.copy2(FAKE, name)
    runner = Runner()
    runner.programs = programs
    runner.service = request.param
    runner.fake = (programs / "COFFERDAM_FAKE").write_text
    yield runner
    runner.close()


def left(runner):
    return [entry for pid, entry in process_table().items()
            if entry[1] not in "ZX" and sandbox_runs.mentions(pid, str(runner.root))]


@pytest.mark.parametrize("what, message", [
    ("error", "error: no luck \\x1b[31m"),
    ("dies", "ended before it was ready"),
    ("garbage", ""),
])
def test_service_that_does_not_start_is_named_and_nothing_is_left(broken, what, message):
    broken.fake(what)
    done = broken.run(["true"])
    err = done.stderr.decode()
    assert done.returncode == 125, err
    assert f"services: cofferdam-{broken.service}" in err and message in err, err
    assert "\x1b" not in err
    assert left(broken) == []
    assert list(pathlib.Path("/sys/fs/cgroup").rglob(f"cofferdam-{broken.layer().name}")) == []


def test_service_that_is_never_ready_ends_the_start(broken):
    broken.fake("silent")
    begin = time.monotonic()
    done = broken.run(["true"], timeout=60)
    assert done.returncode == 125 and f"cofferdam-{broken.service}" in done.stderr.decode(), done.stderr
    assert 8 < time.monotonic() - begin < 40
    assert left(broken) == []


def test_start_can_be_interrupted(broken):
    broken.fake("silent")
    started = broken.start("true")
    assert wait_until(lambda: started.service(broken.service), 15)
    begin = time.monotonic()
    started.signal(signal.SIGINT)
    status, err = started.finish()
    assert status == 130, err
    assert time.monotonic() - begin < 8
    assert wait_until(lambda: not left(broken), 5), left(broken)


def test_resized_terminal_does_not_interrupt_the_start(broken):
    broken.fake("silent")
    started = broken.start("true")
    assert wait_until(lambda: started.service(broken.service), 15)
    started.signal(signal.SIGWINCH)
    time.sleep(2)
    started.signal(signal.SIGINT)
    status, err = started.finish()
    assert status == 130, err  # and not 128 + SIGWINCH
