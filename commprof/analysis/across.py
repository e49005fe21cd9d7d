"""What only all ranks together can tell, in the order in which each part needs the ones before it."""

from __future__ import annotations

from dataclasses import dataclass

from commprof.analysis.model import Analysis


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """What a user says about the run that its traces do not.

    ``hosts`` is a file with the host of every rank, ``hardware`` the name of a machine or a file that describes one.
    """

    hosts: str | None = None
    hardware: str | None = None


def across(analysis: Analysis, options: AnalysisOptions) -> None:
    """Fill in every part of ``analysis`` that compares ranks or groups; a part that cannot speak adds a note."""
    del analysis, options
