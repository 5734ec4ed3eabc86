"""Binding: hooks go round functions of every kind, and never get in the engine's way."""

from __future__ import annotations

import sys
import threading
import types
import unittest
from typing import Any, Callable

from conform_probe.binding import Bound, Hook, Planned, applies, bind, describe

ENGINE = '''
class Base:
    def inherited(self):
        return "inherited"

class Worker(Base):
    limit = 3

    def send(self, n, *, twice=False):
        """Sends."""
        if n < 0:
            raise KeyError("the engine's own")
        return n * (2 if twice else 1)

    @staticmethod
    def plus(a, b):
        return a + b

    @classmethod
    def name(cls):
        return cls.__name__

def release(req):
    return "released " + req
'''


class BindingTest(unittest.TestCase):
    def setUp(self) -> None:
        self.engine: Any = self.module("sglang.fake_engine", ENGINE)
        self.copy: Any = self.module("sglang.fake_copy", "from sglang.fake_engine import release\nfrom sglang.fake_engine import release as let_go\n")
        self.foreign: Any = self.module("other_copy", "from sglang.fake_engine import release\n")
        self.seen: list[Any] = []
        self.on = True

    def module(self, name: str, source: str) -> types.ModuleType:
        module = types.ModuleType(name)
        sys.modules[name] = module
        self.addCleanup(sys.modules.pop, name, None)
        exec(source, module.__dict__)
        return module

    def bind(self, path: str, **hook: Any) -> Bound:
        return bind([Hook("sglang.fake_engine:" + path, ("BLK-1",), **hook)], (0, 5, 23), lambda: self.on)

    def test_before_and_after(self) -> None:
        state = self.bind("Worker.send", before=lambda *a, **k: self.seen.append((a[1:], k)), after=lambda result, *a, **k: self.seen.append(result))
        self.assertEqual(self.engine.Worker().send(4, twice=True), 8)
        self.assertEqual(self.seen, [((4,), {"twice": True}), 8])
        self.assertEqual(self.engine.Worker.send.__doc__, "Sends.")
        self.assertEqual((state.asked, state.bound, state.missing), (1, 1, {}))
        self.assertEqual(state.fired, {"sglang.fake_engine:Worker.send": 1})

    def test_static_and_class_methods(self) -> None:
        self.bind("Worker.plus", after=lambda result, *a: self.seen.append((result, a)))
        self.bind("Worker.name", after=lambda result, *a: self.seen.append(result))
        self.assertEqual((self.engine.Worker.plus(1, 2), self.engine.Worker().plus(3, 4)), (3, 7))
        self.assertEqual((self.engine.Worker.name(), self.engine.Worker().name()), ("Worker", "Worker"))
        self.assertEqual(self.seen, [(3, (1, 2)), (7, (3, 4)), "Worker", "Worker"])

    def test_copies_imported_by_name(self) -> None:
        self.bind("release", before=lambda req: self.seen.append(req))
        for i, function in enumerate((self.engine.release, self.copy.release, self.copy.let_go)):
            self.assertEqual(function(str(i)), f"released {i}")
        self.foreign.release("no module of the engine")
        self.assertEqual(self.seen, ["0", "1", "2"])

    def test_taken_out_and_put_in_again(self) -> None:
        own = {name: vars(self.engine.Worker)[name] for name in ("send", "plus", "name")}
        release = self.engine.release
        state = bind([Hook("sglang.fake_engine:" + path, after=lambda result, *a, **k: self.seen.append(result))
                      for path in ("Worker.send", "Worker.plus", "Worker.name", "Worker.send", "release")], (0, 5, 23), lambda: self.on)
        for on, times in ((False, 0), (True, 1), (False, 0), (True, 1)):
            state.switch(on)
            self.seen.clear()
            self.assertEqual((self.engine.Worker().send(1), self.engine.Worker.plus(1, 2), self.engine.Worker.name(), self.copy.let_go("x")), (1, 3, "Worker", "released x"))
            self.assertEqual(self.seen, [1, 1, 3, "Worker", "released x"] * times)
            self.assertEqual([vars(self.engine.Worker)[name] is function for name, function in own.items()], [not on] * 3)
            self.assertEqual(self.copy.release is release, not on)

    def test_missing_places(self) -> None:
        for path in ("Worker.gone", "Gone.send", "gone", "Worker.inherited", "Worker.limit"):
            state = self.bind(path, before=self.seen.append)
            self.assertEqual((state.asked, state.bound), (1, 0), path)
            self.assertEqual(state.missing, {"BLK-1": ["sglang.fake_engine:" + path]})
            self.assertEqual(state.fired, {})
            state = self.bind(path, before=self.seen.append, optional=True)
            self.assertEqual((state.asked, state.bound, state.missing), (0, 0, {}))
        state = bind([Hook("sglang.not_there:f", ("BLK-1", "SIG-2")), Hook("builtins:int.__add__", ("BLK-2",))], (1,), lambda: True)
        self.assertEqual(state.missing, {"BLK-1": ["sglang.not_there:f"], "SIG-2": ["sglang.not_there:f"], "BLK-2": ["builtins:int.__add__"]})
        self.assertEqual(self.engine.Worker().inherited(), "inherited")

    def test_versions(self) -> None:
        hook = Hook("m:f", since=(0, 5, 20), until=(0, 5, 23))
        self.assertEqual([applies(hook, (0, 5, n)) for n in (19, 20, 22, 23)], [False, True, True, False])
        self.assertTrue(applies(Hook("m:f"), ()))
        self.assertEqual(bind([Hook("m:f", ("BLK-1",), since=(9,))], (0, 5, 23), lambda: True).missing, {})

    def test_hooks_that_fail(self) -> None:
        def fails(*args: Any, **kwargs: Any) -> None:
            raise ValueError("a prompt")

        state = self.bind("Worker.send", before=fails, after=fails)
        self.assertEqual(self.engine.Worker().send(1), 1)
        self.assertEqual(self.engine.Worker().send(2), 2)
        target = "sglang.fake_engine:Worker.send"
        self.assertEqual(state.failures, {target: 4})
        self.assertIn("ValueError", state.errors[target])
        self.assertNotIn("prompt", state.errors[target])

    def test_the_engines_own_errors(self) -> None:
        state = self.bind("Worker.send", before=lambda *a: None, after=lambda *a: self.seen.append("after"))
        around = self.bind("Worker.send", around=lambda function, *a: function(*a))
        with self.assertRaisesRegex(KeyError, "the engine's own"):
            self.engine.Worker().send(-1)
        self.assertEqual((self.seen, state.errors, around.errors), ([], {}, {}))

    def around(self, hook: Callable[..., Any]) -> Bound:
        return self.bind("Worker.send", around=hook)

    def test_around(self) -> None:
        def hook(function: Any, worker: Any, n: int) -> Any:
            self.seen.append(function.guard(lambda: 1 // 0, "otherwise"))
            return function(worker, n + 1)

        state = self.around(hook)
        self.assertEqual(self.engine.Worker().send(1), 2)
        self.assertEqual(self.seen, ["otherwise"])
        self.assertIn("ZeroDivisionError", state.errors["sglang.fake_engine:Worker.send"])

    def test_around_hooks_that_fail(self) -> None:
        """Before the call, after it, and with another signature: the engine notices nothing."""
        def early(function: Any, worker: Any, n: int) -> Any:
            raise RuntimeError("early")

        def late(function: Any, worker: Any, n: int) -> Any:
            function(worker, n)
            raise RuntimeError("late")

        def other(function: Any, worker: Any, n: int, more: int) -> Any:
            raise AssertionError

        def hides(function: Any, worker: Any, n: int) -> Any:
            try:
                return function(worker, n)
            finally:
                raise RuntimeError("over the engine's own")

        calls = 0
        plain = self.engine.Worker.send
        for hook in (early, late, other, hides):
            def counted(worker: Any, n: int) -> Any:
                nonlocal calls
                calls += 1
                return plain(worker, n)

            self.engine.Worker.send = counted
            state = self.around(hook)
            self.assertEqual(self.engine.Worker().send(5), 5)
            with self.assertRaisesRegex(KeyError, "the engine's own"):
                self.engine.Worker().send(-1)
            self.assertGreater(sum(state.failures.values()), 0)
        self.assertEqual(calls, 8, "each call once")

    def test_a_planned_failure_reaches_the_engine(self) -> None:
        def hook(function: Any, worker: Any, n: int) -> Any:
            raise Planned("the plan says so")

        state = self.around(hook)
        with self.assertRaises(Planned):
            self.engine.Worker().send(1)
        self.assertEqual(state.errors, {})

    def test_not_recording(self) -> None:
        self.on = False
        state = self.bind("Worker.send", before=lambda *a: self.seen.append("before"), after=lambda *a: self.seen.append("after"))
        self.engine.Worker().send(1)
        self.assertEqual((self.seen, state.fired["sglang.fake_engine:Worker.send"]), ([], 0))

    def test_recording_begins_while_a_call_waits(self) -> None:
        """What a thread was waiting for when the recorder was opened is taken in."""
        self.on = False
        inside, go = threading.Event(), threading.Event()

        def get(worker: Any) -> int:
            inside.set()
            go.wait(10)
            return 7

        self.engine.Worker.get = get
        self.bind("Worker.get", after=lambda result, *a: self.seen.append(result))
        thread = threading.Thread(target=self.engine.Worker().get)
        thread.start()
        inside.wait(10)
        self.on = True
        go.set()
        thread.join()
        self.assertEqual(self.seen, [7])

    def test_errors_are_described_without_values(self) -> None:
        class Odd(TypeError):
            def __str__(self) -> str:
                raise RuntimeError

        self.assertEqual(describe(KeyError("secret")), "KeyError")
        self.assertEqual(describe(AttributeError("no kv")), "AttributeError: no kv")
        self.assertEqual(describe(Odd()), "an error that can't be described")
