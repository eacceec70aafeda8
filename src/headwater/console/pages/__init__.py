"""The pages of the console: each a function that draws from the read model, and a timer."""
