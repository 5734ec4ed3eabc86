"""An engine for tests: a main process, and a "scheduler" below it, that do what the first argument says."""

import os
import signal
import subprocess
import sys
import time


def child(session=False, orphan=False):
    """A process in a session of its own, or without its parent, if wanted. It is there when this returns."""
    there, say = os.pipe()
    pid = os.fork()
    if pid:
        os.close(say)
        os.read(there, 1)
        if orphan:
            os.waitpid(pid, 0)
        return pid
    if session:
        os.setsid()
    if orphan and os.fork():
        os._exit(0)
    os.close(say)
    while True:
        time.sleep(60)


def serve(argv):
    what = argv[0]
    print("args", argv[1:], "name", sys.argv[0], flush=True)
    if what == "fails":
        print("about to fail", file=sys.stderr, flush=True)
        sys.exit(3)
    if what == "raises":
        raise ValueError("nothing works")
    if what == "says":
        child()
        print("Received " + "sigquit from a child", flush=True)
        time.sleep(60)
    if what == "hangs":
        child(session=True)
        print("loading", flush=True)
        time.sleep(60)
    if what == "env":
        print("environment", sorted(n + "=" + os.environ[n] for n in os.environ if n != "LC_CTYPE"), os.getcwd(), flush=True)
        import probe_here

        print("probe", probe_here.WHERE, flush=True)
    if what == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    scheduler = child()
    if what in ("stubborn", "family"):
        child(session=True)
        child(session=True, orphan=True)
    if what == "spawns":
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
    print("scheduler", scheduler, flush=True)
    print("The server is fired up and ready", flush=True)
    if what == "dies":
        sys.stdin.read()  # /dev/null
        with open(argv[1], "rb") as fifo:
            fifo.read()
        print("last words", flush=True)
        os._exit(7)
    if what == "noprobe":
        return
    while True:
        time.sleep(60)


if __name__ == "__main__":
    serve(sys.argv[1:])
