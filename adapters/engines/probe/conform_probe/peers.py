"""Peers: what the probes of one run tell each other, by small files in its folder.

A transfer engine names the memory that it writes by an address. Whose memory that is, its
owner says.
"""

from __future__ import annotations

import json
import os


class Peers:
    """The workers of one run, by the addresses of their transfer engines."""

    def __init__(self, events: str) -> None:
        """events is the run's events folder: the files lie beside it."""
        self._folder = os.path.join(os.path.dirname(events), "peers")
        self._known: dict[str, str] = {}

    def tell(self, name: str, text: str) -> None:
        """Leave a file for the peers, whole or not at all."""
        os.makedirs(self._folder, exist_ok=True)
        temporary = os.path.join(self._folder, f".{name}")
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, os.path.join(self._folder, name))

    def meet(self, worker: str, session: str) -> None:
        """Say which address is this worker's."""
        self.tell(worker + ".json", json.dumps({"worker": worker, "session": session}))

    def worker_of(self, session: str) -> str:
        """The worker with that address, "" if nobody said."""
        if session not in self._known:
            try:
                for name in os.listdir(self._folder):
                    if name.endswith(".json"):
                        with open(os.path.join(self._folder, name), encoding="utf-8") as file:
                            entry = json.load(file)
                        self._known[str(entry["session"])] = str(entry["worker"])
            except (OSError, ValueError, LookupError, TypeError):
                pass
        return self._known.get(session, "")
