"""The reference side of the tests: tiny checkpoints, and transformers run on them with every value captured."""
