"""The example agent, with a warehouse that hangs as soon as a reservation is written: the moment to kill it."""

import threading
from typing import Any

import agent

reserve = agent.Warehouse.reserve


def hang(warehouse: agent.Warehouse, request: dict[str, Any]) -> dict[str, Any]:
    reserve(warehouse, request)
    threading.Event().wait()
    return {}


agent.Warehouse.reserve = hang  # type: ignore[method-assign]
agent.main()
