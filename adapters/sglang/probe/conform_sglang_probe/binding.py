"""Binding: hooks are put round the engine's own functions, and it is counted which bound and which fired.

A hook never raises into the engine: its error is counted and noted once. Nothing of
the engine's files is changed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from dataclasses import dataclass, field
from typing import Any, Callable


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
    errors: dict[str, str] = field(default_factory=dict)


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
    wrapped = _wrap(hook, function, state, active)
    state.fired[hook.target] = 0
    setattr(owner, name, type(raw)(wrapped) if isinstance(raw, (staticmethod, classmethod)) else wrapped)
    if not inspect.isclass(owner):
        _rebind(name, function, wrapped)
    return True


def _rebind(name: str, function: Any, wrapped: Any) -> None:
    """Copies that other modules imported by name are replaced too."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("sglang.") and getattr(module, "__dict__", {}).get(name) is function:
            setattr(module, name, wrapped)


def _wrap(hook: Hook, function: Callable[..., Any], state: Bound, active: Callable[[], bool]) -> Callable[..., Any]:
    target = hook.target

    def failed(error: BaseException) -> None:
        state.errors.setdefault(target, repr(error)[:200])

    def note(step: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        try:
            step(*args, **kwargs)
        except Exception as error:
            failed(error)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not active():
            result = function(*args, **kwargs)
            if hook.after is not None and active():  # it waited from before the recording began
                note(hook.after, result, *args, **kwargs)
            return result
        state.fired[target] += 1
        if hook.around is not None:
            return hook.around(_Once(function, failed), *args, **kwargs)
        if hook.before is not None:
            note(hook.before, *args, **kwargs)
        result = function(*args, **kwargs)
        if hook.after is not None:
            note(hook.after, result, *args, **kwargs)
        return result

    return wrapper


class _Once:
    """The engine's function inside an around hook, with a place for the hook's own errors."""

    __slots__ = ("_function", "failed")

    def __init__(self, function: Callable[..., Any], failed: Callable[[BaseException], None]) -> None:
        self._function = function
        self.failed = failed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def guard(self, step: Callable[[], Any], otherwise: Any = None) -> Any:
        """A step of the hook; its error is noted, and does not reach the engine."""
        try:
            return step()
        except Exception as error:
            self.failed(error)
            return otherwise
