"""Pairs of traces for every finding: one in which it must be found, and its neighbour, different in one thing, in which
it must not. What is charged and what would come back is worked out by hand, in µs per step."""
