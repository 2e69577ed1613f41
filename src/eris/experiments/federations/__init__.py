"""Federations of real processes on one machine, and what they came to."""
