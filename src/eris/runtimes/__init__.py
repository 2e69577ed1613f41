"""Runtimes carry messages between nodes; they decide nothing."""
