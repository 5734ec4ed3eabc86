"""Runs an SGLang server in a process that was forked with SGLang imported.

The fork server of adapters/engines/launch calls serve() in each worker. It does what
`python -m sglang.launch_server ARGV` does.
"""

from __future__ import annotations

import os

import sglang.launch_server as launcher


def serve(argv: list[str]) -> None:
    """Serves until the engine ends. Plugins load here and not before: they differ from worker to worker."""
    launcher.load_plugins()
    arguments = launcher.prepare_server_args(argv)
    try:
        launcher.run_server(arguments)
    finally:
        launcher.kill_process_tree(os.getpid(), include_parent=False)
