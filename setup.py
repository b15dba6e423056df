"""Builds the compiled modules (each ``.py`` with a ``.pxd`` beside it) where Cython and a C compiler are there, and
goes on without it where not.

Everything else about the package is in pyproject.toml. ``BKBOX_REQUIRE_KERNEL=1`` makes a kernel that cannot be
compiled an error, for the making of wheels. An editable install has the package ``proof`` beside ``bkbox``, and what it
compiles of its own; no wheel has.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

NATIVE = Path("bkbox", "native")
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
    """The kernel, and in a checkout the model's search.

    All of the kernel, or, where a module does not compile, nothing of it: modules rely on the types of others.
    """

    def finalize_options(self) -> None:
        if self.inplace or self.editable_mode:
            self.distribution.ext_modules = extensions("bkbox", "proof")
        super().finalize_options()
        self.parallel = os.cpu_count()

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            if required:
                raise
            print(f"the kernel is not compiled, bkbox will run it interpreted: {error}")
            for ext in self.extensions:
                name = self.get_ext_filename(self.get_ext_fullname(ext.name))
                Path(self.build_lib, name).unlink(missing_ok=True)
            self.extensions = []


class BuildPackages(build_py):
    """The packages of pyproject.toml; in an editable install ``proof``, too."""

    def run(self) -> None:
        if self.editable_mode:
            self.distribution.packages += find_packages(include=["proof", "proof.*"])
        super().run()


def extensions(*packages: str) -> list[Extension]:
    """One per module there that has a ``.pxd`` beside it."""
    modules = sorted(
        path
        for package in packages
        for path in Path(package).rglob("*.py")
        if path.with_suffix(".pxd").exists()
    )
    found = [
        Extension(
            ".".join(path.with_suffix("").parts),
            [str(path)],
            include_dirs=[str(NATIVE)],
            depends=[str(NATIVE / "crc32c.h"), str(NATIVE / "memory.pxd")],
            extra_compile_args=["-O3", "-g0"],
        )
        for path in modules
        if path != NATIVE / "memory.py"  # inline in the others
    ]
    try:
        from Cython.Build import cythonize
    except ImportError:
        if required:
            raise
        print("Cython is not there: the kernel is not compiled, bkbox will run it interpreted")
        return []
    return list(
        cythonize(
            found,
            build_dir="build/kernel",
            compiler_directives=DIRECTIVES,
            nthreads=os.cpu_count() or 1,
        )
    )


setup(
    ext_modules=extensions("bkbox"), cmdclass={"build_ext": BuildKernel, "build_py": BuildPackages}
)
