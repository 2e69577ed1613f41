"""The round as messages: state machines without I/O, their schema, and the record of a run."""
