"""What a collection is, for the layers above: types, keys, keyed runs, capabilities."""
