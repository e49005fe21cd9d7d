"""Seeded damage to trace files, and what must hold whatever the damage."""
