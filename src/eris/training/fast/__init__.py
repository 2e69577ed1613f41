"""Many clients trained in one pass."""
