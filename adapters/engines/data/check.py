"""Imports the modules that an environment must have. usage: check.py MODULE... -- MODULE_WITHOUT_CUDA..."""

import importlib
import sys

split = sys.argv.index("--")
for name in sys.argv[1:split]:
    importlib.import_module(name)
for name in sys.argv[split + 1 :]:
    if importlib.import_module(name).cuda.is_available():
        sys.exit(f"{name} finds a GPU in an environment that is to have none")
