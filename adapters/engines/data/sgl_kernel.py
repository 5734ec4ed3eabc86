"""Stands in for SGLang's compiled kernels where there is no GPU.

Any module and any name below sgl_kernel imports. What is imported is a Missing object, which
raises when it is called: whoever reaches a kernel on such a machine is told which one.
"""

import importlib.abc
import importlib.machinery
import sys

__version__ = "0.0.0+conform"
__path__ = []


class Missing:
    """A kernel, or a namespace of kernels, that is not there."""

    def __init__(self, path):
        self.__name__ = path.rpartition(".")[2]
        self.__qualname__ = path

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(self.__qualname__ + "." + name)

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self.__qualname__} is a stand-in: this environment was installed without GPU kernels")


def lookup(path):
    """The __getattr__ of the module path."""

    def get(name):
        if name.startswith("__"):
            raise AttributeError(f"module {path!r} has no attribute {name!r}")
        return Missing(path + "." + name)

    return get


class Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module below this one, and makes it an empty one like this."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith(__name__ + "."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__getattr__ = lookup(module.__name__)


__getattr__ = lookup(__name__)
sys.meta_path.append(Submodules())
