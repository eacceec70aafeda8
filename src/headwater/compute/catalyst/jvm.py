"""The Java side of compute, compiled in the JVM by the Janino that ships with Spark.

No jar is built and none is shipped: the sources are in this package, one class a file, each
compiled over the ones before it. They use Catalyst's internals, so they belong to the Spark version
that the package pins; where a class is missing the compiler says which, and nothing is guessed.

Objects of these classes live in the driver. Where tasks are to have some, too, the classes are
*shipped*: what was compiled is handed to Spark as a jar, and its executors fetch it.

Kept by: :func:`java_object`, once per JVM. Relied on by: ``compiler.py``, ``try_eval.py``,
``dataflow/program.py``, ``columns/frame.py``.
"""

from __future__ import annotations

import threading
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any, Final

from headwater.base.errors import HeadwaterError

CLASSES: Final = (
    "Refusal",
    "Call",
    "Rules",
    "Printer",
    "Checker",
    "UserFunctions",
    "Prepared",
    "Temporal",
    "Exporter",
    "FrontEnd",
)
"""In the order in which they need each other."""

_lock: Final = threading.Lock()
_made: dict[tuple[str, ...], tuple[Any, Any]] = {}


class UnsupportedSpark(HeadwaterError):
    """This Spark has not the classes that the front end needs."""


def front_end(session: Any) -> Any:
    """Return the Java object of ``FrontEnd.java``."""
    return java_object(session, CLASSES)


def java_object(
    session: Any, classes: tuple[str, ...], package: str = __package__, *, shipped: bool = False
) -> Any:
    """Return the object of the last of these classes; compiles them if this JVM has not.

    Their sources are in the directory ``java`` of the package.
    """
    gateway = session.sparkContext._gateway
    with _lock:
        if classes not in _made or _made[classes][0] is not gateway:
            code: dict[str, bytes] = {}
            made = _compiled(gateway, classes, package, code)
            if shipped:
                _ship(session.sparkContext, classes[-1], code)
            _made[classes] = (gateway, made)
        return _made[classes][1]


def _ship(context: Any, name: str, code: dict[str, bytes]) -> None:
    # A directory that PySpark removes when the JVM ends.
    jar = Path(context._temp_dir) / f"{name}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for each, data in code.items():
            archive.writestr(f"{each.replace('.', '/')}.class", data)
    context._jsc.addJar(str(jar))


def _compiled(gateway: Any, classes: tuple[str, ...], package: str, code: dict[str, bytes]) -> Any:
    """Return a new object of the last class; ``code`` becomes what all were compiled to."""
    from py4j.protocol import Py4JJavaError

    jvm = gateway.jvm
    sources = resources.files(package) / "java"
    # The loader that knows Spark; jars added to the session later do not matter here.
    loader = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    loader = loader.getClass().getClassLoader()
    for name in classes:
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
        code.update(compiler.getBytecodes())
    made = loader.loadClass(f"headwater.{classes[-1]}")
    no_types = gateway.new_array(jvm.java.lang.Class, 0)
    no_values = gateway.new_array(jvm.java.lang.Object, 0)
    return made.getDeclaredConstructor(no_types).newInstance(no_values)
