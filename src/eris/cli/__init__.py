"""The ``eris`` command."""
