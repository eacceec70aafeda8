"""The composition root: builds every port once."""
