"""Nodes on a real network: gRPC with mutual TLS."""
