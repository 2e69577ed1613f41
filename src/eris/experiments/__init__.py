"""Recipes that put the rooms together, and what they report."""
