"""Tells what an interpreter is, as JSON on one line."""

import json
import platform
import sys
import sysconfig


def has(name):
    try:
        __import__(name)
        return True
    except Exception:
        return False


print(json.dumps({
    "minor": "%d.%d" % sys.version_info[:2],
    "version": platform.python_version(),
    "implementation": platform.python_implementation(),
    "platform": sysconfig.get_platform(),
    "libc": platform.libc_ver()[0],
    "libc_version": platform.libc_ver()[1],
    "executable": sys.executable,
    "venv": has("venv") and has("ensurepip"),
}))
