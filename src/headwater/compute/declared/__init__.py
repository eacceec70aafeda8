"""Projects written for Spark Declarative Pipelines: their definitions, and the queries behind them.

    elements   what a project declares: outputs, and the flows into them
    project    its Python files, imported so that pyspark's own decorators declare to us
    auto_cdc   changes by key, as a query over all of them
    history    the same with the rows that were
    guarded    the session in which its code runs: names are looked up here, and nothing is run
    queries    a flow's query as a plan of ours, and what it reads outside
    outside    what that is: files, mostly
    arrivals   what a flow over a stream has to append
    written    what Spark writes for a sink

Who decides what to do with them is ``headwater.pipelines``.
"""

from __future__ import annotations
