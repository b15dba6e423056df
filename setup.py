"""Builds the compiled modules (each ``.py`` with a ``.pxd`` beside it) where Cython and a C compiler are there, and
goes on without it where not.

Everything else about the package is in pyproject.toml. ``BKBOX_REQUIRE_KERNEL=1`` makes a kernel that cannot be
compiled an error, for the making of wheels. An editable install compiles nothing: ``python setup.py build_ext
--inplace`` does, what has changed, ``proof``'s modules too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command import editable_wheel
from setuptools.command.build_ext import build_ext

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None

NATIVE = Path("bkbox", "native")
INLINE = NATIVE / "memory.py", NATIVE / "objects.py"
"""Their compiled form is in the modules that use them."""
GENERATED = Path("build", "kernel")
OPTIMIZE = ["-O3", "-g0", "-w"]
MEMORY_VIEWS = Extension(
    "bkbox.native.memory_views", ["bkbox/native/memory_views.c"], extra_compile_args=OPTIMIZE
)
"""Cython's own code for memory views, generated: shared, for in each module it would be half of what is compiled."""
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "annotation_typing": False,  # the types are those of the .pxd
    "show_performance_hints": False,
}
required = os.environ.get("BKBOX_REQUIRE_KERNEL") == "1"


class BuildKernel(build_ext):
    """The kernel, and in a checkout the model's search.

    All of the kernel, or, where a module does not compile, nothing of it: modules rely on the types of others.
    """

    def finalize_options(self) -> None:
        if self.inplace:
            self.distribution.ext_modules = extensions("bkbox", "proof")
        super().finalize_options()
        self.parallel = os.cpu_count()

    def run(self) -> None:
        if self.editable_mode:
            self.extensions = []
            return
        forget_stale(self.extensions)
        folders = [".", self.build_lib] if self.inplace else [self.build_lib]
        try:
            made = cythonize(
                self.extensions,
                build_dir=str(GENERATED),
                compiler_directives=DIRECTIVES,
                shared_utility_qualified_name=MEMORY_VIEWS.name,
                nthreads=os.cpu_count() or 1,
                quiet=True,
            )
            for ext, each in zip(self.extensions, made, strict=True):
                ext.sources = each.sources
            super().run()
        except Exception as error:
            if required:
                raise
            print(f"the kernel is not compiled, bkbox will run it interpreted: {error}")
            for ext in self.extensions:
                name = self.get_ext_filename(self.get_ext_fullname(ext.name))
                for folder in folders:
                    Path(folder, name).unlink(missing_ok=True)
            self.extensions = []


class EditableByPath(editable_wheel.editable_wheel):
    """An editable install whose ``.pth`` file names folders; ``proof`` lies in the first of them.

    Otherwise setuptools installs a finder, which every process imports before anything else, with a dozen modules that
    most do not need: the interpreter's start takes twice the processor time. setuptools offers no public choice for
    more than one folder; requirements/run.lock has the version, and tests/host/test_checkout.py looks at the result.
    """

    def _select_strategy(self, name, _tag, _build_lib):
        folders = [Path(self.project_dir, root) for root in (".", "tui", "spark")]
        return editable_wheel._StaticPth(self.distribution, name, folders)


def forget_stale(wanted: list[Extension]) -> None:
    """Deletes generated C that is older than a declaration it was made with. Cython does not see all of these: not
    those of ``from PACKAGE cimport MODULE``."""
    for extension in wanted:
        source = Path(extension.sources[0])
        made = (GENERATED / source).with_suffix(".c")
        if source.suffix == ".py" and made.exists():
            newest = max(path.stat().st_mtime for path in declarations(source.with_suffix(".pxd")))
            if made.stat().st_mtime < newest:
                made.unlink()


def declarations(pxd: Path) -> set[Path]:
    """A ``.pxd``, and those whose names it uses, directly or not."""
    found: set[Path] = set()
    ahead = [pxd]
    while ahead:
        path = ahead.pop()
        found.add(path)
        for module, names in re.findall(
            r"^from (\S+) cimport (.+)$", path.read_text(), re.MULTILINE
        ):
            folder = Path(*module.split("."))
            near = (
                folder.with_suffix(".pxd"),
                *(folder / f"{name}.pxd" for name in names.split(", ")),
            )
            ahead += [each for each in near if each.exists() and each not in found]
    return found


def extensions(*packages: str) -> list[Extension]:
    """One per module there that has a ``.pxd`` beside it; the longest first, so that no core waits for the last."""
    if cythonize is None:
        if required:
            raise SystemExit("error: BKBOX_REQUIRE_KERNEL=1 needs Cython")
        print("Cython is not there: the kernel is not compiled, bkbox will run it interpreted")
        return []
    modules = (
        path
        for package in packages
        for path in Path(package).rglob("*.py")
        if path.with_suffix(".pxd").exists() and path not in INLINE
    )
    return [
        MEMORY_VIEWS,
        *(
            Extension(
                ".".join(path.with_suffix("").parts),
                [str(path)],
                include_dirs=[str(NATIVE)],
                depends=[str(NATIVE / "crc32c.h"), str(NATIVE / "memory.pxd")],
                extra_compile_args=OPTIMIZE,
            )
            for path in sorted(modules, key=lambda path: (-path.stat().st_size, path))
        ),
    ]


if __name__ == "__main__":  # cythonize's processes import this
    setup(
        ext_modules=extensions("bkbox"),
        cmdclass={"build_ext": BuildKernel, "editable_wheel": EditableByPath},
    )
