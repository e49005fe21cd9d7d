"""``python -m commprof``."""

from commprof.cli.app import run

run()
