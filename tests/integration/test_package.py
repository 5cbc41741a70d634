"""`cmake --install` and the Debian package hold working programs."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

BIN = pathlib.Path(os.environ["COFFERDAM_BIN"])
BUILD = BIN.parent


def cached(name):
    found = re.search(rf"^{name}:[A-Z]+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    return found.group(1) if found else ""


needs_all_targets = pytest.mark.skipif(bool(cached("COFFERDAM_SANITIZE")), reason="a sanitizer build is not packaged")


@needs_all_targets
def test_an_installed_cofferdam_runs_a_sandbox(tmp_path):
    subprocess.run(["cmake", "--install", BUILD, "--prefix", tmp_path / "usr"], check=True, capture_output=True,
                   env={**os.environ, "DESTDIR": str(tmp_path / "stage")})
    # With DESTDIR the prefix is below the stage; absolute destinations (/etc) are too.
    prefix = tmp_path / "stage" / str(tmp_path / "usr").lstrip("/")
    assert (prefix / "share/cofferdam/policies").is_dir()
    assert (tmp_path / "stage/etc/apparmor.d/cofferdam").is_file()
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    done = subprocess.run([prefix / "bin/cofferdam", "run", "--", "echo", "from the inside"], cwd=project,
                          env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"from the inside\n"


@needs_all_targets
def test_the_debian_package_names_what_it_needs(tmp_path):
    if not shutil.which("dpkg-shlibdeps"):
        pytest.skip("dpkg-shlibdeps is not installed (package dpkg-dev)")
    subprocess.run(["cpack", "-G", "DEB", "-B", tmp_path], cwd=BUILD, check=True, capture_output=True, timeout=300)
    (package,) = tmp_path.glob("*.deb")
    control = subprocess.run(["dpkg-deb", "-f", package], check=True, capture_output=True).stdout.decode()
    assert re.search(r"^Package: cofferdam$", control, re.M)
    depends = re.search(r"^Depends: (.*)$", control, re.M).group(1)
    for name in ("bubblewrap", "fuse3", "libc6", "libsqlite3-0"):
        assert name in depends, depends
    # Where the distribution's libfuse is too old, ours is a part of the program.
    linked = subprocess.run(["ldd", BUILD / "bin/cofferdam-fsproxy"], check=True, capture_output=True).stdout.decode()
    assert ("libfuse3.so" in linked) == ("libfuse3-" in depends), depends
    listing = subprocess.run(["dpkg-deb", "-c", package], check=True, capture_output=True).stdout.decode()
    for path in ("./usr/bin/cofferdam", "./usr/libexec/cofferdam/cofferdam-init",
                 "./usr/libexec/cofferdam/cofferdam-fsproxy", "./usr/libexec/cofferdam/cofferdam-egressproxy",
                 "./usr/libexec/cofferdam/cofferdam-reader",
                 "./usr/share/cofferdam/policies/seccomp/default.json", "./etc/apparmor.d/cofferdam"):
        assert f" {path}\n" in listing, path
