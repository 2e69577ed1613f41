"""Audits of runs and of recorded messages: what is asked, attacked, reported and drawn."""
