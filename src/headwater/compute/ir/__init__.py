"""The intermediate representation of queries: what a view, an ad-hoc query and a recompute run.

``node.py`` has the operators, ``expression.py`` what stands in them, ``plan.py`` a whole stored
query, ``text.py`` its readable form, ``functions.py`` the functions whose answer depends on order,
``refusal.py`` what is said of a query that cannot be had. Nothing here knows Spark.
"""
