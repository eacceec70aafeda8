"""Projects written for Spark Declarative Pipelines, run incrementally on a location.

    spec       the file spark-pipeline.yml
    names      what the project calls relations, and what we do
    sql_file   the statements of its .sql files
    graph      its datasets and their queries, each after what it reads
    plan       what a run has to do, and why: a pure decision
    inputs     files and other things outside, as tables that follow them
    flows      streaming tables: what arrived since the last run, appended once
    sinks      what flows append, delivered outside (sink_delta, sink_kafka)
    run        the doing

``headwater run`` and ``headwater check`` are the commands.
"""

from __future__ import annotations
