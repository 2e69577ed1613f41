"""Attacks on what an observer of a run was sent, and what they found."""
