"""setup.py: which of the generated C is made anew."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest
from setuptools import Extension

CHECKOUT = Path(__file__).parents[2]


def setup_py() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_py", CHECKOUT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("used", "line"),
    [
        ("package/module", "from package cimport module"),
        ("package/module", "from package.module cimport First, Second"),
        ("other/module", "from package.between cimport first"),
    ],
)
def test_c_that_is_older_than_what_it_was_made_with_is_made_anew(
    used: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sources = {
        "package/user.py": "",
        "package/user.pxd": f"cimport cython\n\n{line}\n\ncdef int _x\n",
        "package/module.pxd": "",
        "package/between.pxd": "from other cimport module\n",
        "other/module.pxd": "from package cimport between\n",
        "build/kernel/package/user.c": "",
    }
    for name, text in sources.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1000, 1000))
    made, wanted = (
        Path("build/kernel/package/user.c"),
        [Extension("package.user", ["package/user.py"])],
    )
    setup = setup_py()
    setup.forget_stale(wanted)
    assert made.exists()
    os.utime(f"{used}.pxd", (2000, 2000))
    setup.forget_stale(wanted)
    assert not made.exists()
    setup.forget_stale(wanted)
