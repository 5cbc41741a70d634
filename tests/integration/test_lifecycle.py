"""Detached sandboxes, further commands, stop, prune: engine native as root and as an ordinary user, engine docker."""
import pytest

pytest.register_assert_rewrite("lifecycle_cases", "engine_cases", "sandbox_runs")

import docker_daemon
from lifecycle_cases import LifecycleCases
from sandbox_runs import ORDINARY_USER, Runner, fuse_for_everybody, ordinary_user, skip_unless_root


@pytest.fixture(scope="class", params=["root", "ordinary"])
def runner(request):
    skip_unless_root()
    if request.param == "root":
        made = Runner()
        yield made
        made.close()
        return
    ordinary_user()
    with fuse_for_everybody():
        made = Runner(user=ORDINARY_USER)
        yield made
        made.close()


class TestNativeLifecycle(LifecycleCases):
    pass


class TestDockerLifecycle(LifecycleCases):
    @pytest.fixture(scope="class")
    def runner(self):
        skip_unless_root()
        with docker_daemon.daemon() as daemon:
            made = Runner(engine_flags=["--engine", "docker", "--image", daemon.host_image()])
            yield made
            made.close()
