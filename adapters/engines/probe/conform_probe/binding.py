"""Binding: hooks are put round the engine's own functions, and it is counted which bound and which fired.

A hook never raises into the engine: its errors are counted, and the first is noted.
Nothing of the engine's files is changed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from dataclasses import dataclass, field
from typing import Any, Callable


# The rules that can't be judged without hooks that see who holds which block, who touches it, and
# what was said to whom.
BLOCKS = ("BLK-1", "BLK-2", "BLK-3", "BLK-4", "BLK-5", "REQ-2")
ACCESS = ("BLK-2", "BLK-3", "SIG-1", "SIG-2", "REQ-1", "REQ-3")
PATHS = ("SIG-2", "SIG-3")


@dataclass
class Hook:
    """One place in the engine. target is module:Class.method, or module:function."""

    target: str
    rules: tuple[str, ...] = ()
    before: Callable[..., None] | None = None
    after: Callable[..., None] | None = None  # its first argument is the result
    around: Callable[..., Any] | None = None  # its first argument is the function
    optional: bool = False  # some versions or connectors do not have it
    since: tuple[int, ...] = ()  # engine versions from this one on
    until: tuple[int, ...] = ()  # … and below this one


@dataclass
class Bound:
    """What became of the hooks."""

    asked: int = 0
    bound: int = 0
    missing: dict[str, list[str]] = field(default_factory=dict)  # by rule
    fired: dict[str, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # the first of each hook
    failures: dict[str, int] = field(default_factory=dict)  # how many there were
    places: list[tuple[Any, str, Any, Any]] = field(default_factory=list)  # owner, name, the engine's own, what is there now

    def summary(self) -> dict[str, object]:
        """What is known once they are bound."""
        return {"asked": self.asked, "bound": self.bound, "missing": self.missing}

    def switch(self, on: bool) -> None:
        """Take every hook out, or put it in again: with none the engine is as it was."""
        for owner, name, own, ours in self.places if on else reversed(self.places):
            setattr(owner, name, ours if on else own)

    def failed(self, target: str, error: BaseException) -> None:
        """Note an error of a hook."""
        self.failures[target] = self.failures.get(target, 0) + 1
        if target not in self.errors:
            self.errors[target] = describe(error)


class Planned(RuntimeError):
    """What a hook raises into the engine because a fault says so."""


# Errors whose texts name code. Others may name what a client sent.
_OF_CODE = (AttributeError, TypeError, NameError, ImportError, IndexError)


def describe(error: BaseException) -> str:
    """An error in one line that is harmless to show: without values of the engine."""
    try:
        place, trace = "", error.__traceback__
        while trace is not None:
            name = trace.tb_frame.f_globals.get("__name__", "")
            if str(name).startswith("conform_"):
                place = f" at {str(name).rpartition('.')[2]}:{trace.tb_lineno}"
            trace = trace.tb_next
        text = f": {error}"[:160] if isinstance(error, _OF_CODE) else ""
        return type(error).__name__ + text + place
    except Exception:
        return "an error that can't be described"


def applies(hook: Hook, version: tuple[int, ...]) -> bool:
    """Whether a version of the engine is asked for this hook."""
    return not (hook.since and version < hook.since) and not (hook.until and version >= hook.until)


def bind(hooks: list[Hook], version: tuple[int, ...], active: Callable[[], bool]) -> Bound:
    """Put every hook that applies in its place. active says whether this process records."""
    state = Bound()
    for hook in hooks:
        if not applies(hook, version):
            continue
        state.asked += 1
        if _place(hook, state, active):
            state.bound += 1
        elif hook.optional:
            state.asked -= 1
        else:
            for rule in hook.rules:
                state.missing.setdefault(rule, []).append(hook.target)
    return state


def _place(hook: Hook, state: Bound, active: Callable[[], bool]) -> bool:
    module_name, _, path = hook.target.partition(":")
    try:
        owner: Any = importlib.import_module(module_name)
        *parents, name = path.split(".")
        for part in parents:
            owner = getattr(owner, part)
        raw = inspect.getattr_static(owner, name)
    except Exception:
        return False
    if inspect.isclass(owner) and name not in owner.__dict__:
        return False  # inherited: the hook on its base is enough
    function = raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw
    if not callable(function):
        return False
    wrapped = _wrap(hook, function, state, active)
    placed = type(raw)(wrapped) if isinstance(raw, (staticmethod, classmethod)) else wrapped
    try:
        setattr(owner, name, placed)
    except Exception:
        return False
    state.places.append((owner, name, raw, placed))
    state.fired[hook.target] = 0
    if not inspect.isclass(owner):
        _rebind(function, wrapped, module_name.partition(".")[0] + ".", state)
    return True


def _rebind(function: Any, wrapped: Any, engine: str, state: Bound) -> None:
    """Copies that other modules of the engine have imported, under any name, are replaced too."""
    for path, module in list(sys.modules.items()):
        if path.startswith(engine):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if value is function:
                    setattr(module, name, wrapped)
                    state.places.append((module, name, function, wrapped))


def _wrap(hook: Hook, function: Callable[..., Any], state: Bound, active: Callable[[], bool]) -> Callable[..., Any]:
    target = hook.target

    fired, before, after, around = state.fired, hook.before, hook.after, hook.around

    def failed(error: BaseException) -> None:
        state.failed(target, error)

    # One wrapper for each kind: some of these functions are called thousands of times a second.

    @functools.wraps(function)
    def beside(*args: Any, **kwargs: Any) -> Any:
        on = active()
        if on:
            fired[target] += 1
            if before is not None:
                try:
                    before(*args, **kwargs)
                except Exception as error:
                    failed(error)
        result = function(*args, **kwargs)
        if after is not None and (on or active()):  # it may have waited from before the recording began
            try:
                after(result, *args, **kwargs)
            except Exception as error:
                failed(error)
        return result

    @functools.wraps(function)
    def within(*args: Any, **kwargs: Any) -> Any:
        if not active():
            return function(*args, **kwargs)
        fired[target] += 1
        return _around(around, _Once(function, failed), args, kwargs)  # type: ignore[arg-type]

    return beside if around is None else within


class _Once:
    """The engine's function inside an around hook, with a place for the hook's own errors."""

    __slots__ = ("_function", "failed", "called", "result", "raised")

    def __init__(self, function: Callable[..., Any], failed: Callable[[BaseException], None]) -> None:
        self._function = function
        self.failed = failed
        self.called = False
        self.result: Any = None
        self.raised: BaseException | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.called = True
        try:
            self.result = self._function(*args, **kwargs)
        except BaseException as error:
            self.raised = error
            raise
        return self.result

    def guard(self, step: Callable[[], Any], otherwise: Any = None) -> Any:
        """A step of the hook; its error is noted, and does not reach the engine."""
        try:
            return step()
        except Exception as error:
            self.failed(error)
            return otherwise


def _around(hook: Callable[..., Any], once: _Once, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an around hook. If it fails, the engine gets what it would get without it."""
    try:
        return hook(once, *args, **kwargs)
    except Planned:
        raise
    except Exception as error:
        if error is once.raised:
            once.raised = None  # it holds this frame, which holds once
            raise
        once.failed(error)
    if not once.called:
        return once(*args, **kwargs)
    if once.raised is not None:
        raise once.raised
    return once.result
