"""Views kept by delta rules: a plan as operators with state, stepped together in one Spark job."""
