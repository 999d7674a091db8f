"""Lessons that run: each number on the page is computed as it is told."""
