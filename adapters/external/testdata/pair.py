"""The same as pair.c, by the Python module. Arguments: folder, and "lost" or "torn"."""

import os
import resource
import signal
import sys
import threading

import conform_trace
from conform_trace import Source

try:
    Source(os.path.join(sys.argv[1], "no folder"), "x")
    sys.exit("a folder that is not there")
except FileNotFoundError:
    pass
prefill, decode = (Source(sys.argv[1], w) for w in ("prefill-0", "decode-0"))
for s, worker, role in ((prefill, "prefill-0", "prefill"), (decode, "decode-0", "decode")):
    s.record("source", worker=worker, role=role, host="h", clock="h/boot", absent=None)
    s.record("pool", pool="kv", blocks=64, what="kv")
if len(sys.argv) > 2:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(decode.path) + 30, was[1]))
    for _ in range(3):
        decode.record("note", text="a note that has no room, whatever it may say at length")
    if sys.argv[2] != "lost":
        os._exit(0)
    resource.setrlimit(resource.RLIMIT_FSIZE, was)


def serve(n: int) -> None:
    for i in range(20):
        blocks = [8 * n, 8 * n + 1, 8 * n + 2, 8 * n + 5]
        req, handoff, access = f'r"{n}\n{i}\ud800', f"room-{n}-{i}", f"a-{n}-{i}"
        decode.record("alloc", pool="kv", blocks=blocks, holder=req, req=req, handoff=handoff)
        decode.record("grant", pool="kv", blocks=blocks, handoff=handoff, to="prefill-0", mode="w")
        decode.record("emit", sig=f"g-{n}-{i}", signal="METADATA", handoff=handoff)
        prefill.record("observe", sig=f"g-{n}-{i}", signal="METADATA", handoff=handoff)
        prefill.record("begin", access=access, mode="w", target="decode-0", pool="kv", blocks=blocks, handoff=handoff)
        prefill.record("end", since=conform_trace.now(), access=access, ok=True)
        prefill.record("emit", sig=f"d-{n}-{i}", signal="STATUS", handoff=handoff, claims="completed", access=[access])
        decode.record("observe", sig=f"d-{n}-{i}", signal="STATUS", handoff=handoff)
        decode.record("free", pool="kv", blocks=blocks, holder=req, req=req, handoff=handoff, why="done")


threads = [threading.Thread(target=serve, args=(n,), name="t") for n in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
with prefill, decode:
    if os.fork() == 0:  # a child has no source of its own
        decode.record("note", text="child")
        decode.seal()
        os._exit(0)
    os.wait()
decode.record("note", text="too late")
