"""The ways a sandbox is started: every attack is tried on each of them."""
import os
import pathlib
import shutil
import stat
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

import battery  # noqa: E402

WAYS = ("native-root", "native-user", "docker-root")


@pytest.fixture(scope="session", params=WAYS)
def way(request):
    """A battery.Runner. Skipped only where this machine cannot have it, with the reason."""
    if os.geteuid() != 0:
        pytest.skip("the escape tests prepare users, namespaces and bait: they need root")
    if request.param == "native-root":
        yield battery.Runner()
    elif request.param == "native-user":
        user = battery.ordinary_user()
        # Ordinary machines have /dev/fuse 0666; where it is closed it is opened for the duration.
        before = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
        os.chmod("/dev/fuse", 0o666)
        try:
            yield battery.Runner(user=user.pw_name)
        finally:
            os.chmod("/dev/fuse", before)
    else:
        import docker_daemon
        with docker_daemon.daemon() as daemon:
            yield battery.Runner(engine="docker", image=daemon.busybox_image)


@pytest.fixture(scope="session")
def project(way, tmp_path_factory):
    # Not below pytest's own 0700 directory: an ordinary user has to get in.
    root = pathlib.Path(subprocess.run(["mktemp", "-d", "/tmp/cofferdam-escape.XXXXXX"], check=True,
                                       capture_output=True).stdout.decode().strip())
    owner = battery.ordinary_user() if way.user else None
    made = None
    try:
        root.chmod(0o755)
        made = battery.make_project(root / "bait", battery.BIN / "cofferdam-probe", owner)
        yield made
    finally:
        if made:
            made.close()
        shutil.rmtree(root, ignore_errors=True)
