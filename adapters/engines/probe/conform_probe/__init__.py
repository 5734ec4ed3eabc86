"""The part of a probe that is the same for every engine: a spool that a kill takes nothing
from, a ledger of pools, hooks round an engine's functions, and the harness's failpoints.

An engine's own probe is a package beside this one: it has the bindings, and the hooks.
"""
