"""Builds the extension with the project's own CMake, so that there is one way to build it.

    pip install ./client/python        needs a checkout around this folder, and the packages that docs/python.md lists

EVENKEEL_BUILD_DIR names a build folder to use instead of a temporary one.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


def find_source():
    here = pathlib.Path(__file__).resolve().parent
    for folder in (os.environ.get("EVENKEEL_SOURCE_DIR"), here.parents[1]):
        if folder and (pathlib.Path(folder) / "proto" / "service.proto").exists():
            return pathlib.Path(folder)
    raise SystemExit("evenkeel: build from a checkout: pip install ./client/python (or set EVENKEEL_SOURCE_DIR)")


class CMakeBuild(build_ext):
    def build_extension(self, extension):
        build = pathlib.Path(os.environ.get("EVENKEEL_BUILD_DIR", pathlib.Path(self.build_temp) / "cmake")).resolve()
        build.mkdir(parents=True, exist_ok=True)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
        subprocess.run(["cmake", "-S", str(find_source()), "-B", str(build), "-G", "Ninja",
                        "-DCMAKE_BUILD_TYPE=Release", "-DEVENKEEL_WORKER=OFF", "-DEVENKEEL_PYTHON=ON",
                        f"-DPython_EXECUTABLE={sys.executable}"], check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "_evenkeel", "-j", jobs], check=True)
        target = pathlib.Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        built = next((build / "python" / "evenkeel").glob("_evenkeel*.so"))
        shutil.copy2(built, target)


setup(ext_modules=[Extension("evenkeel._evenkeel", [])], cmdclass={"build_ext": CMakeBuild})
