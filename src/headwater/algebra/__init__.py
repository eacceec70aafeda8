"""Mathematics of times and collections: no I/O, no Spark, no clock."""
