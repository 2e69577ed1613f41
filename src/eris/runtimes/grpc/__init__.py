"""Nodes on a real network: gRPC with mutual TLS."""

import os

# A failed handshake is told by the link, in words; gRPC's own lines are for its developers.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
