"""Builds the compiled kernel (bkbox/kernel) where Cython and a C compiler are there, and goes on without it where not.

Everything else about the package is in pyproject.toml. ``BKBOX_REQUIRE_KERNEL=1`` makes a kernel that cannot be
compiled an error, for the making of wheels.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNEL = Path("bkbox", "kernel")
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "annotation_typing": False,  # the types are those of the .pxd
}
required = os.environ.get("BKBOX_REQUIRE_KERNEL") == "1"


class BuildKernel(build_ext):
    """A kernel that does not compile is said, and left out."""

    def run(self) -> None:
        self._unless_required(super().run)

    def build_extension(self, ext: Any) -> None:
        self._unless_required(lambda: super(BuildKernel, self).build_extension(ext))

    def _unless_required(self, build: Any) -> None:
        try:
            build()
        except Exception as error:
            if required:
                raise
            print(f"the kernel is not compiled, bkbox will run it interpreted: {error}")

    def copy_extensions_to_source(self) -> None:
        built = [
            ext
            for ext in self.extensions
            if Path(self.build_lib, self.get_ext_filename(self.get_ext_fullname(ext.name))).exists()
        ]
        self.extensions = built
        super().copy_extensions_to_source()


def extensions() -> list[Extension]:
    """One per kernel module that has types beside it."""
    modules = sorted(path.stem for path in KERNEL.glob("*.py") if path.with_suffix(".pxd").exists())
    found = [
        Extension(
            f"bkbox.kernel.{name}",
            [str(KERNEL / f"{name}.py")],
            include_dirs=[str(KERNEL)],
            depends=[str(KERNEL / "crc32c.h"), str(KERNEL / "octets.pxd")],
            extra_compile_args=["-O3", "-g0"],
        )
        for name in modules
        if name != "octets"  # inline in the others
    ]
    try:
        from Cython.Build import cythonize
    except ImportError:
        if required:
            raise
        print("Cython is not there: the kernel is not compiled, bkbox will run it interpreted")
        return []
    return list(cythonize(found, build_dir="build/kernel", compiler_directives=DIRECTIVES))


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildKernel})
