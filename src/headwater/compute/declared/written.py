"""What Spark writes for a sink: one batch of rows, as files of a directory or to anything else.

    files   exactly once: a batch is one file, whose name is the batch's own. It is written aside
            (``_headwater/<sink>``, which readers of the directory pass over), and renamed. If a
            file of that name is there, the batch is, and nothing is done.
    other   at least once: whatever ``DataFrame.write`` of a format does, again if nobody noted it

Formats, options and compression are Spark's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import PySparkException

from headwater.base.errors import HeadwaterError
from headwater.compute.select import spark_message
from headwater.persist.spark import arrow_frame

FILE_FORMATS: Final = ("csv", "json", "orc", "parquet", "text", "xml")

_ASIDE: Final = "_headwater"
_LOG_OF_SPARK: Final = "_spark_metadata"


class NotWritten(HeadwaterError):
    """A batch that a sink did not take; the next run delivers it."""

    def __init__(self, sink: str, why: str) -> None:
        super().__init__(f"sink {sink!r} did not take what was to be delivered: {why}")


def write_file(
    session: Any,
    sink: str,
    form: str,
    options: Mapping[str, str],
    rows: pa.Table,
    token: str,
    number: int,
) -> None:
    """Have one file of a directory hold these rows, unless it is there."""
    hadoop = session.sparkContext._jvm.org.apache.hadoop.fs
    others = {key: value for key, value in options.items() if key != "path"}
    folder = hadoop.Path(options["path"])
    with _telling(sink):
        files = folder.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
        if files.exists(hadoop.Path(folder, _LOG_OF_SPARK)):
            raise NotWritten(
                sink,
                f"{options['path']} is the directory of a stream of Spark, whose readers see only "
                f"what its log names; choose another path",
            )
        name = f"part-{number:08d}-{token}"
        pattern = hadoop.Path(folder, f"{name}.*")
        if files.globStatus(pattern):
            return
        aside = hadoop.Path(hadoop.Path(folder, _ASIDE), token)
        files.delete(aside, True)  # Of a run that died.
        attempt = hadoop.Path(aside, uuid4().hex)
        frame = arrow_frame(session, rows).coalesce(1)
        frame.write.format(form).options(**others).save(str(attempt.toString()))
        (written,) = files.globStatus(hadoop.Path(attempt, "part-*"))
        suffix = str(written.getPath().getName()).partition(".")[2]
        renamed = files.rename(written.getPath(), hadoop.Path(folder, f"{name}.{suffix}"))
        # It may be there by now: of somebody who was fenced, and had the same batch in hand.
        if not renamed and not files.globStatus(pattern):
            raise NotWritten(
                sink,
                f"{name}.{suffix} could not be renamed in {options['path']}; the next run tries "
                f"again, if we may write there",
            )
        files.delete(hadoop.Path(folder, _ASIDE), True)


def write_anywhere(
    session: Any, sink: str, form: str, options: Mapping[str, str], rows: pa.Table
) -> None:
    """Have Spark append these rows to whatever the format stands for."""
    with _telling(sink):
        frame = arrow_frame(session, rows)
        frame.write.format(form).options(**options).mode("append").save()


@contextmanager
def _telling(sink: str) -> Iterator[None]:
    # Errors of Hadoop come as they are through py4j, which is no dependency of ours to name.
    try:
        yield
    except NotWritten:
        raise
    except PySparkException as error:
        raise NotWritten(sink, spark_message(error)) from error
    except Exception as error:
        raised = getattr(error, "java_exception", None)
        raise NotWritten(sink, str(raised.toString() if raised is not None else error)) from error
