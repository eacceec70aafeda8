"""From Spark SQL, or a DataFrame, to our representation, and back to Spark SQL.

``java/`` is compiled in the JVM when it is first needed (``jvm.py``): it applies Catalyst's rules
and writes the plan as JSON with every expression as checked text. ``translate.py`` makes our
operators of it, ``lowering.py`` those that Catalyst has and we have not; ``compiler.py`` is the
door. ``render.py`` turns a plan into one Spark SQL text that runs it as a whole; ``ordered.py`` and
``rounding.py`` see to it that the answer depends on nothing but the rows.
"""
