"""From data to update: what a client does between receiving a model and sending its update."""
