"""The Java side of compute, compiled in the JVM by the Janino that ships with Spark.

No jar is built and none is shipped: the sources are in this package, one class a file, each
compiled over the ones before it. They use Catalyst's internals, so they belong to the Spark version
that the package pins; where a class is missing the compiler says which, and nothing is guessed.
What they were compiled to is kept for the next JVM of the same Spark (``compiled.py``).

The first class that a JVM gets is ``Undelayed``: from then on no answer of the gateway waits for an
acknowledgement, which would be 40 ms for each of more than 8 KB, such as what a step has written.

Objects of these classes live in the driver. Where tasks are to have some, too, the classes are
*shipped*: what was compiled is handed to Spark as a jar, and its executors fetch it.

Kept by: :func:`java_object`, once per JVM. Relied on by: ``compiler.py``, ``try_eval.py``,
``dataflow/program.py``, ``columns/frame.py``.
"""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.base.errors import HeadwaterError
from headwater.compute.catalyst import compiled

CLASSES: Final = (
    "Refusal",
    "Call",
    "Rules",
    "Printer",
    "Bounded",
    "Numeric",
    "Grammar",
    "Moments",
    "Reader",
    "Reading",
    "Cases",
    "Held",
    "Postgres",
    "Checker",
    "UserFunctions",
    "Prepared",
    "Temporal",
    "AsText",
    "Exporter",
    "FrontEnd",
)
"""In the order in which they need each other."""


class _Compiled(NamedTuple):
    """Classes in a JVM: an object of the last, and what all were compiled to."""

    gateway: Any
    made: Any
    code: Mapping[str, bytes]


UNDELAYED: Final = ("Undelayed",)

_lock: Final = threading.Lock()
_made: dict[tuple[str, ...], _Compiled] = {}
_shipped: dict[tuple[str, ...], Any] = {}
"""The newest context that has them."""


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
    context = session.sparkContext
    with _lock:
        if UNDELAYED not in _made or _made[UNDELAYED].gateway is not context._gateway:
            _made[UNDELAYED] = _undelayed(context._gateway)
        known = _made.get(classes)
        if known is None or known.gateway is not context._gateway:
            known = _made[classes] = _compiled(context._gateway, classes, package)
        # One JVM may have one context after the other, each with executors of its own.
        if shipped and _shipped.get(classes) is not context:
            _ship(context, classes[-1], known.code)
            _shipped[classes] = context
        return known.made


def _undelayed(gateway: Any) -> _Compiled:
    from py4j.java_gateway import JavaObject
    from py4j.protocol import GATEWAY_SERVER_OBJECT_ID

    compiled = _compiled(gateway, UNDELAYED, __package__)
    compiled.made.install(JavaObject(GATEWAY_SERVER_OBJECT_ID, gateway._gateway_client))
    return compiled


def _ship(context: Any, name: str, code: Mapping[str, bytes]) -> None:
    # A directory that PySpark removes when the JVM ends.
    jar = Path(context._temp_dir) / f"{name}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for each, data in code.items():
            archive.writestr(f"{each.replace('.', '/')}.class", data)
    context._jsc.addJar(str(jar))


def _compiled(gateway: Any, classes: tuple[str, ...], package: str) -> _Compiled:
    jvm = gateway.jvm
    directory = resources.files(package) / "java"
    sources = {name: (directory / f"{name}.java").read_text("utf-8") for name in classes}
    # The loader that knows Spark; jars added to the session later do not matter here.
    spark = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    spark = spark.getClass().getClassLoader()
    java, class_path = map(jvm.java.lang.System.getProperty, ("java.vm.version", "java.class.path"))
    file = compiled.file_of(sources, java, class_path)
    code = compiled.read(file)
    if code is None:
        code = _cooked(jvm, spark, sources)
        compiled.keep(file, code)
    known = jvm.java.util.HashMap()
    for name, data in code.items():
        known.put(name, data)
    loader = jvm.org.codehaus.commons.compiler.util.reflect.ByteArrayClassLoader(known, spark)
    made = loader.loadClass(f"headwater.{classes[-1]}")
    no_types = gateway.new_array(jvm.java.lang.Class, 0)
    no_values = gateway.new_array(jvm.java.lang.Object, 0)
    return _Compiled(gateway, made.getDeclaredConstructor(no_types).newInstance(no_values), code)


def _cooked(jvm: Any, loader: Any, sources: Mapping[str, str]) -> dict[str, bytes]:
    from py4j.protocol import Py4JJavaError

    code: dict[str, bytes] = {}
    for name, source in sources.items():
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        try:
            compiler.cook(f"{name}.java", source)
        except Py4JJavaError as error:
            problem = error.java_exception.getMessage()
            raise UnsupportedSpark(
                f"{name}.java does not compile in this Spark: {problem}"
            ) from None
        loader = compiler.getClassLoader()
        code.update(compiler.getBytecodes())
    return code
