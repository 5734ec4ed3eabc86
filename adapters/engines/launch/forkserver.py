"""Starts the Python processes of an engine, and ends them.

The harness runs this with the interpreter of the engine's environment and talks to
it in JSON lines. In: one line that says what to prepare, then one per worker.

    {"entry": source, "name": its name, "preload": [module, ...]}
    {"id": "1", "argv": [...], "env": {...}, "log": path, "dir": path, "exec": false}

Out, on what standard output was at the start:

    {"ready": seconds}  or  {"failed": text}
    {"id": "1", "pid": of the worker's main process, "guard": pid}  or  {"id": "1", "error": text}
    {"id": "1", "exit": status, "signal": number or 0}      the main process has ended
    {"id": "1", "gone": true}                               so has all that it left behind

A worker with "exec" replaces itself with the program in argv. One without is a fork
of this process, with the preloaded modules in it, and calls serve(argv) of the entry.

Each worker has a guard, a fork of this process too. It is the "child subreaper" of the
worker: whatever the worker's processes start, in whichever session, stays below the
guard. The guard ends all of it when the worker's main process ends, and when this
process does, which it notices by the end of a pipe.

Python 3.10 or later, standard library.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

LONGEST_LINE = 1 << 24  # bytes of one line from the harness
Serve = Callable[[list[str]], object]


class Parent:
    """What this process and its guards share: the pipe to the harness, and the pipe that ends with this process."""

    def __init__(self, out: int) -> None:
        self.out = out
        self.alive, self.living = os.pipe()
        self.wake, self.waker = os.pipe()
        for fd in (self.wake, self.waker):
            os.set_blocking(fd, False)

    def say(self, **what: Any) -> None:
        """Tells the harness. A line is one write below PIPE_BUF, so guards may write too."""
        line = json.dumps(what)
        if len(line) > 4000:
            line = json.dumps({k: v[:1000] if isinstance(v, str) else v for k, v in what.items()})
        try:
            os.write(self.out, line.encode() + b"\n")
        except OSError:
            pass  # the harness is gone; the end of the other pipes says what to do

    def drain(self) -> None:
        try:
            while os.read(self.wake, 4096):
                pass
        except BlockingIOError:
            pass


def prctl(option: int, value: Any) -> None:
    """Linux only; elsewhere the pipes alone end the workers."""
    try:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def descendants(root: int) -> list[int]:
    """All processes below root that have not ended, parents first."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as f:
                state, parent = f.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state not in (b"Z", b"X"):
            children.setdefault(int(parent), []).append(int(name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found[1:]


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def reap() -> dict[int, int] | None:
    """The children that have ended, with their wait status; None where there are no children at all."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended or None
        if pid == 0:
            return ended
        ended[pid] = status


def exit_of(status: int) -> dict[str, int]:
    code = os.waitstatus_to_exitcode(status)
    return {"exit": max(code, 0), "signal": max(-code, 0)}


# The worker's main process.


def redirect(log: str) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((null, 0), (fd, 1), (fd, 2)):
        os.dup2(source, target, inheritable=True)


def extend_path(env: dict[str, str]) -> None:
    """Puts the folders of the worker's PYTHONPATH that are new here in front, such as a probe's."""
    new: list[str] = []
    for folder in env.get("PYTHONPATH", "").split(os.pathsep):
        if folder and folder not in sys.path and folder not in new:
            new.append(folder)
    sys.path[:0] = new
    importlib.invalidate_caches()


def force_fork() -> None:
    """Engines ask for "spawn", which would import everything again in each process."""
    import multiprocessing

    multiprocessing.set_start_method("fork", force=True)
    keep: Any = lambda method, force=False: None  # noqa: E731
    multiprocessing.set_start_method = keep


def run_serve(serve: Serve, argv: list[str]) -> int:
    try:
        serve(argv)
        return 0
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            return (e.code or 0) & 0xFF
        print(e.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1


def worker(job: dict[str, Any], serve: Serve | None, guard: int) -> NoReturn:
    """Runs in the worker's main process and does not return."""
    status = 127
    try:
        os.setsid()
        prctl(PR_SET_NAME, b"python")
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(status)
        redirect(job["log"])
        argv, env = job["argv"], job["env"]
        if job["dir"]:
            os.chdir(job["dir"])
        if serve is None:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execve(argv[0], argv, env)
        os.environ.clear()
        os.environ.update(env)
        extend_path(env)
        sys.argv = [job["name"], *argv]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        status = run_serve(serve, argv)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as e:
        os.write(2, f"the worker can't be started: {e}\n".encode(errors="replace"))
    finally:
        os._exit(status)


# The guard of a worker.


def guard(job: dict[str, Any], serve: Serve | None, parent: Parent) -> None:
    """Starts the worker, and ends when nothing of it is left."""
    os.setsid()
    os.close(parent.living)
    prctl(PR_SET_NAME, b"conform-guard")
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    for fd in (parent.wake, parent.waker):
        os.close(fd)
    parent.wake, parent.waker = os.pipe()
    for fd in (parent.wake, parent.waker):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(parent.waker, warn_on_full_buffer=False)
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in (parent.out, parent.alive, parent.wake, parent.waker):
            os.close(fd)
        worker(job, serve, me)
    parent.say(id=job["id"], pid=pid, guard=me)
    watch(job["id"], pid, parent)


def watch(name: str, main: int, parent: Parent) -> None:
    ended: dict[int, int] | None = {}
    while ended is not None and main not in ended:
        ready, _, _ = select.select([parent.alive, parent.wake], [], [])
        if parent.alive in ready:
            break  # whoever started this worker is gone
        parent.drain()
        ended = reap()
    if ended and main in ended:
        parent.say(id=name, **exit_of(ended[main]))
        main = 0
    pause = 0.002
    while ended is not None:
        for pid in descendants(os.getpid()):
            kill(pid)
        if main:
            kill(main)
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
        ended = reap()
        if ended and main in ended:
            parent.say(id=name, **exit_of(ended[main]))
            main = 0


# The server.


def check(job: dict[str, Any]) -> None:
    """The error says what is wrong with an order."""
    for key, kind in (("argv", list), ("env", dict), ("log", str)):
        if not isinstance(job.get(key), kind):
            raise ValueError(f"{key} is missing or of the wrong kind")
    job.setdefault("dir", "")
    job.setdefault("exec", False)
    texts = [job["dir"], *job["argv"], *job["env"], *job["env"].values()]
    if not all(isinstance(t, str) and "\0" not in t for t in texts):
        raise ValueError("argv and env must be texts")
    if job["exec"] and not job["argv"]:
        raise ValueError("argv is empty")


class Server:
    def __init__(self, parent: Parent, serve: Serve | None, name: str) -> None:
        self.parent = parent
        self.serve = serve
        self.name = name
        self.guards: dict[int, str] = {}
        self.helpers = set(children_of(os.getpid()))  # what preloaded modules started
        self.open = True
        self.rest = b""

    def order(self, line: bytes) -> None:
        name = None
        try:
            job = json.loads(line)
            if not isinstance(job, dict) or not isinstance(job.get("id"), str):
                raise ValueError("no JSON object with an id")
            name = job["id"]
            check(job)
            if not job["exec"] and self.serve is None:
                raise ValueError("there is no entry to fork for")
            job["name"] = self.name
            self.start(job)
        except (ValueError, RecursionError, OSError) as e:
            print(f"an order that can't be followed: {e}", file=sys.stderr, flush=True)
            if name is not None:
                self.parent.say(id=name, error=str(e))

    def start(self, job: dict[str, Any]) -> None:
        pid = os.fork()
        if pid:
            self.guards[pid] = job["id"]
            return
        try:
            guard(job, None if job["exec"] else self.serve, self.parent)
        except BaseException as e:
            self.parent.say(id=job["id"], error=str(e))
        finally:
            os._exit(0)

    def read(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            self.open = False
            os.close(self.parent.living)  # the guards end their workers
            return
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > LONGEST_LINE:
            self.rest = b""
        for line in lines:
            if line.strip():
                self.order(line)

    def reap(self) -> None:
        self.parent.drain()
        for pid in reap() or {}:
            name = self.guards.pop(pid, None)
            if name is not None:
                self.parent.say(id=name, gone=True)
        for pid in children_of(os.getpid()):
            if pid not in self.guards and pid not in self.helpers:
                kill(pid)  # its guard was killed

    def run(self) -> None:
        """Returns when the harness has gone and all workers have ended."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.set_wakeup_fd(self.parent.waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.reap()
        while self.open or self.guards:
            waiting = [self.parent.wake] + ([0] if self.open else [])
            ready, _, _ = select.select(waiting, [], [])
            if self.parent.wake in ready:
                self.reap()
            if 0 in ready:
                self.read()


def children_of(root: int) -> list[int]:
    out = []
    for pid in descendants(root):
        try:
            with open(f"/proc/{pid}/stat", "rb") as f:
                if int(f.read().rpartition(b")")[2].split()[1]) == root:
                    out.append(pid)
        except (OSError, ValueError, IndexError):
            pass
    return out


def prepare(orders: dict[str, Any]) -> Serve | None:
    """Imports once what every worker needs."""
    for module in orders.get("preload") or []:
        importlib.import_module(module)
    if not orders.get("entry"):
        return None
    scope: dict[str, Any] = {"__name__": "conform_entry"}
    exec(compile(orders["entry"], orders.get("name") or "entry", "exec"), scope)
    force_fork()
    titles = sys.modules.get("setproctitle")
    if titles is not None:
        titles.getproctitle()  # it finds the memory of the title now; in a worker, whose environment is another, it would not
    serve: Serve = scope["serve"]
    return serve


def main(orders: dict[str, Any]) -> None:
    began = time.monotonic()
    parent = Parent(os.dup(1))
    os.dup2(2, 1)  # what modules print must not get between the lines
    sys.path[:] = [p for p in sys.path if p]  # not the folder that the harness happens to run in
    warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
    try:
        serve = prepare(orders)
    except BaseException as e:
        traceback.print_exc()
        parent.say(failed=f"{type(e).__name__}: {e}")
        sys.exit(1)
    gc.collect()
    gc.freeze()  # the collector of a fork leaves these objects alone, and so their pages shared
    parent.say(ready=round(time.monotonic() - began, 3))
    Server(parent, serve, orders.get("name") or "worker").run()
    sys.stdout.flush()
    os._exit(0)  # without the exit handlers of what was imported
