"""Every call under every condition answers as on ext4, and leaves every object as ext4 would.

Beside errno, mode, owner and links, the times that a call changes are compared. What lower decides is
compared less closely: a copy-up makes the time of the last change new, and where layers merge nobody counts
directories.
"""
import os
import tempfile

import pytest

import fsproxy_cases as fc
import fsproxy_conformance as conformance
import fsproxy_world as fw

pytestmark = pytest.mark.skipif(not fw.fuse_available() or os.geteuid() != 0, reason="needs root and /dev/fuse")


@pytest.fixture
def plain():
    with tempfile.TemporaryDirectory(prefix="plain-", dir="/var/tmp") as path:
        os.chmod(path, 0o755)
        yield path


def report(different):
    """What differs, and nothing else."""
    lines = []
    for name, sides in different.items():
        (want, objects, _), (got, others, _) = sides["plain"], sides["workspace"]
        lines.append(name)
        if want != got:
            lines.append(f"  answers {want}, here {got}")
        lines += [f"  {path}: {objects.get(path)}, here {others.get(path)}" for path in sorted({*objects, *others})
                  if objects.get(path) != others.get(path)]
    return "\n".join([*lines[:int(os.environ.get("SHOW", "60"))], f"{len(different)} differ"])


# Where lower is in play each third case is taken; COFFERDAM_CONFORMANCE=all takes all.
SOME = 1 if os.environ.get("COFFERDAM_CONFORMANCE") == "all" else 3


@pytest.mark.parametrize("group", list(fc.GROUPS))
@pytest.mark.parametrize("place", ["upper", "merged", "lower"])
def test_answers_as_ext4(group, place, plain):
    batch = conformance.Batch(fc.GROUPS[group]()[::1 if place == "upper" else SOME])
    batch.directories(plain)
    want = batch.act(batch.set_up(plain), plain, loose=place != "upper")
    with fw.World() as world:
        os.chmod(world.root, 0o755)
        os.chmod(world.lower, 0o755)
        os.chmod(world.mnt, 0o755)
        sides = None
        if place != "upper":
            batch.directories(world.lower)
        if place == "lower":
            sides = batch.set_up(world.lower)
        world.start()
        if place == "upper":
            os.mkdir(world.mnt / "new")
            batch.directories(world.mnt / "new")
        root = world.mnt / "new" if place == "upper" else world.mnt
        sides = sides or batch.set_up(root)
        got = batch.act(sides, root, loose=place != "upper")
    different = conformance.differences(want, got, place != "lower")
    assert not different, report(different)
