"""What a location that does nothing costs: metadata after 100,000 idle ticks.

An idle tick is one ``advance`` of the timeline, whatever the number of collections on it. Target:
entries in the log, the size of its file and the size of a rollup stay bounded.
"""

from __future__ import annotations

from pathlib import Path

from measure import SCHEMA, begin, cost, directory_bytes, quick, scratch, show

from headwater.persist.client import Client, open_location
from headwater.persist.commands import Advance
from headwater.persist.log import rollup_key

STEPS = 5


def metadata(client: Client, location: Path) -> list[object]:
    core = client.core
    head, rollups = core.state.seqno, core.state.rollups
    oldest = core.consensus.scan(type(head)(0), 1)[0].seqno
    log = sum(path.stat().st_size for path in location.glob("log.db*"))
    size = len(core.blob.get(rollup_key(rollups[-1].seqno)) or b"") if rollups else 0
    objects = sum(1 for _ in core.blob.list())
    return [
        f"{head - oldest + 1:,}",
        f"{log / 1024:,.0f}",
        f"{size / 1024:,.1f}",
        objects,
        f"{directory_bytes(location) / 1024:,.0f}",
    ]


def ticks(folder: Path, count: int, collections: int) -> None:
    location = folder / f"idle-{collections}"
    with open_location(location) as client:
        client.core.submit(Advance("t", 1)).result()
        for number in range(collections):
            write, _ = client.create_or_load(f"c{number}", SCHEMA, key=("k",), timeline="t")
            write.write([({"k": 1, "amount": 1, "name": "x"}, 1, 1)])
            write.seal(2)
        client.core.submit(Advance("t", 2)).result()
        rows = [["0", "", "", *metadata(client, location)]]
        at, each = 2, count // STEPS
        for step in range(STEPS):
            with cost() as spent:
                for _ in range(each):
                    at += 1
                    client.core.submit(Advance("t", at)).result()
            rows.append(
                [
                    f"{(step + 1) * each:,}",
                    f"{spent.wall_s / each * 1e3:.2f}",
                    f"{spent.cpu_s / each * 1e3:.2f}",
                    *metadata(client, location),
                ]
            )
        for number in range(collections):
            assert client.reader(f"c{number}").upper.only() == at
    show(
        f"Idle ticks of {collections:,} collections",
        ["ticks", "ms", "CPU ms", "entries", "log KiB", "rollup KiB", "objects", "all KiB"],
        rows,
    )


def main() -> None:
    count = 5_000 if quick() else 100_000
    begin(f"Metadata after {count:,} idle ticks")
    with scratch() as folder:
        ticks(folder, count, 1)
        ticks(folder, count // 5, 1_000)


if __name__ == "__main__":
    main()
