"""Views, kept up to date on Spark."""
