"""The Java side of the front end, compiled in the JVM by the Janino that ships with Spark.

No jar is built and none is shipped: the sources are in this package, one class a file, each
compiled over the ones before it. They use Catalyst's internals, so they belong to the Spark version
that the package pins; where a class is missing the compiler says which, and nothing is guessed.

Kept by: :func:`front_end`, once per JVM. Relied on by: ``compiler.py``.
"""

from __future__ import annotations

import threading
from importlib import resources
from typing import Any, Final

from headwater.base.errors import HeadwaterError

CLASSES: Final = (
    "Refusal",
    "Call",
    "Rules",
    "Printer",
    "Checker",
    "Prepared",
    "Temporal",
    "Exporter",
    "FrontEnd",
)
"""In the order in which they need each other."""

_lock: Final = threading.Lock()
_made: tuple[Any, Any] | None = None


class UnsupportedSpark(HeadwaterError):
    """This Spark has not the classes that the front end needs."""


def front_end(session: Any) -> Any:
    """Return the Java object of ``FrontEnd.java``; compiles it if this JVM has not."""
    global _made
    gateway = session.sparkContext._gateway
    with _lock:
        if _made is None or _made[0] is not gateway:
            _made = (gateway, _compiled(gateway))
        return _made[1]


def _compiled(gateway: Any) -> Any:
    from py4j.protocol import Py4JJavaError

    jvm = gateway.jvm
    sources = resources.files(__package__) / "java"
    # The loader that knows Spark; jars added to the session later do not matter here.
    loader = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    loader = loader.getClass().getClassLoader()
    for name in CLASSES:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        try:
            compiler.cook(f"{name}.java", (sources / f"{name}.java").read_text("utf-8"))
        except Py4JJavaError as error:
            problem = error.java_exception.getMessage()
            raise UnsupportedSpark(
                f"{name}.java does not compile in this Spark: {problem}"
            ) from None
        loader = compiler.getClassLoader()
    made = loader.loadClass(f"headwater.{CLASSES[-1]}")
    no_types = gateway.new_array(jvm.java.lang.Class, 0)
    no_values = gateway.new_array(jvm.java.lang.Object, 0)
    return made.getDeclaredConstructor(no_types).newInstance(no_values)
