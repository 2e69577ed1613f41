"""Secure sums: an owner learns the sum over the clients it closed on, and nothing of a single one.

Replicated helper masks (docs/secure-sums.md). Pure functions on bytes and words; secrets come in as
arguments, drawn by whoever runs a member.
"""
