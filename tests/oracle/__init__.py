"""Oracles: the definitions of the report written down a second time, tick by tick, with plain loops.

They know nothing of commprof. One tick is one nanosecond, so they suit traces of a few hundred ns.
"""
