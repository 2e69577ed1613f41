"""The models of the papers' experiments (these need the ``torch`` extra)."""
