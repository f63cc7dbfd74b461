"""Builds Stretto with CMake, as scripts/package does, for the Python that runs this, and puts the program, its libraries and
its files next to the module:

    stretto/__init__.py ...   the module
    stretto/_stretto*.so      its part in C++
    stretto/_installed/       bin/stretto, lib/, share/stretto/: what `cmake --install` makes

STRETTO_BUILD names a build folder of the clone that is used as it is; otherwise build/pip/cmake is made. The processor is that
of this machine unless CMAKE_ARGS has -DSTRETTO_NATIVE=OFF."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent
TARGETS = ["stretto", "stretto_blas", "stretto_simgrid", "stretto_manual", "stretto_api", "stretto_python"]
UNUSED = ["include", "lib/cmake", "lib/python3", "share/doc", "share/man", "share/bash-completion", "share/zsh", "share/fish"]


def run(*command):
    if subprocess.run(command).returncode:
        sys.exit(f"setup.py: {' '.join(command)} failed; `scripts/packages python` installs what the build needs")


def built():
    """Returns the build folder."""
    if os.environ.get("STRETTO_BUILD"):
        return pathlib.Path(os.environ["STRETTO_BUILD"]).resolve()
    folder = ROOT / "build/pip/cmake"
    run("cmake", "--preset", "release", "-S", str(ROOT), "-B", str(folder), f"-DSTRETTO_PYTHON={sys.executable}",
        *shlex.split(os.environ.get("CMAKE_ARGS", "")))
    run("cmake", "--build", str(folder), "--target", *TARGETS)
    return folder


class BuildWithCMake(build_ext):
    def build_extension(self, extension):
        package = pathlib.Path(self.get_ext_fullpath(extension.name)).resolve().parent
        installed = package / "_installed"
        shutil.rmtree(installed, ignore_errors=True)
        run("cmake", "--install", str(built()), "--prefix", str(installed))
        module = installed / f"lib/python3/dist-packages/stretto/_stretto{sysconfig.get_config_var('EXT_SUFFIX')}"
        if not module.exists():
            sys.exit(f"setup.py: the build made no module for {sys.executable}; `scripts/packages python` installs pybind11")
        shutil.copy(module, package)
        for folder in UNUSED:
            shutil.rmtree(installed / folder, ignore_errors=True)


(ROOT / "build/pip").mkdir(parents=True, exist_ok=True)
setup(version=re.search(r"^project\(stretto VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1],
      packages=["stretto"], package_dir={"": "python"}, package_data={"stretto": ["*.pyi", "py.typed"]},
      ext_modules=[Extension("stretto._stretto", [])], cmdclass={"build_ext": BuildWithCMake})
