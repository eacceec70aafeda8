"""The console's start leaves the other threads of the server alone."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, gc
from headwater.console.app import application

def refused(*args):
    raise AssertionError("somebody looks through all objects of the process")

async def receive():
    return {"type": "lifespan.startup"}

async def started():
    said = asyncio.Queue()
    app = application(None, bytes, lambda: (200, {}))
    gc.get_objects = refused
    running = asyncio.create_task(app({"type": "lifespan"}, receive, said.put))
    print(await said.get(), flush=True)
    running.cancel()

asyncio.run(started())
"""


def test_it_does_not_look_through_all_objects() -> None:
    """Who has them in hand makes ``tuple(generator)`` of any other thread fail (SystemError).

    In a process of its own, as there is one console with pages in each.
    """
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.stdout.strip() == "{'type': 'lifespan.startup.complete'}", ran.stdout + ran.stderr
