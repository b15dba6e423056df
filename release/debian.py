"""The package for each Debian, built, linted and tried in systems of their own, which debootstrap makes."""

from __future__ import annotations

import os
import re
import shutil
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path

from release.commands import DIST, TRIAL, WORK, NotMadeError, run

SUITES = {"bookworm": 12, "trixie": 13}
_INSTALL = "apt-get install -q -y --no-install-recommends"
_SUPPRESSED = "bogus-mail-host,bogus-mail-host-in-debian-changelog"
"""The maintainers have no address of their own yet."""
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def make(tree: Path, suite: str) -> None:
    """``bkbox_VERSION~debN_ARCH.deb``: the names of one release's packages differ, and an upgrade of Debian upgrades
    bkbox, too. Raises NotMadeError."""
    if os.geteuid() != 0:
        raise NotMadeError("systems for building are made by root: run it as root")
    if shutil.which("debootstrap") is None:
        raise NotMadeError("debootstrap is not installed: apt install debootstrap")
    build, clean = WORK / f"{suite}-build", WORK / f"{suite}-clean"
    run("debootstrap", "--variant=minbase", suite, build)
    run("cp", "--archive", build, clean)
    source = build / "build" / tree.name
    shutil.copytree(tree, source, symlinks=True)
    changelog = source / "debian" / "changelog"
    changelog.write_text(backported(changelog.read_text(), suite))
    within = f"/build/{tree.name}"
    _in(build, f"apt-get update -q && {_INSTALL} lintian && apt-get build-dep -q -y {within}")
    _in(build, f"cd {within} && dpkg-buildpackage -us -uc -b")
    (package,) = (build / "build").glob("bkbox_*.deb")
    for file in (package, TRIAL):
        shutil.copy(file, clean)
    _in(clean, f"apt-get update -q && {_INSTALL} /{package.name}")
    _in(clean, f"/{TRIAL.name}")
    shutil.copy(package, DIST)
    _in(build, f"lintian --fail-on error,warning --suppress-tags {_SUPPRESSED} /build/*.changes")


def backported(changelog: str, suite: str) -> str:
    """With an entry on top for a Debian: the last one's version, ``~deb12`` added, a second later."""
    head = re.match(r"(\S+) \((\S+)\) \S+; (.*)\n", changelog)
    signed = re.search(r"^(?P<who> -- .*>)  (?P<date>.*)\n", changelog, re.MULTILINE)
    assert head is not None
    assert signed is not None
    name, version, urgency = head.groups()
    when = format_datetime(parsedate_to_datetime(signed["date"]) + timedelta(seconds=1))
    return (
        f"{name} ({version}~deb{SUITES[suite]}) {suite}; {urgency}\n\n  * Built for {suite}.\n\n"
        f"{signed['who']}  {when}\n\n{changelog}"
    )


def _in(root: Path, command: str) -> None:
    """Run a command in such a system, with the network, the certificates and pip's settings of this one."""
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    certificates = root / "build-certificates.crt"
    shutil.copy(_CERTIFICATES, certificates)
    settings = {key: value for key, value in os.environ.items() if key.startswith("PIP_INDEX")}
    settings |= {"PIP_CERT": f"/{certificates.name}", "HOME": "/root", "LANG": "C.UTF-8"}
    settings |= {"DEBIAN_FRONTEND": "noninteractive", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    mounts = f"mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev"
    arguments = " ".join(f"{key}={value}" for key, value in settings.items())
    script = f'{mounts} && exec env -i {arguments} chroot {root} sh -c "$1"'
    run("unshare", "--mount", "sh", "-c", script, "sh", command)
